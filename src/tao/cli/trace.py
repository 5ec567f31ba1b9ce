"""`tao trace`: traces of agent sessions converted, counted and sampled. Only wiring and showing.

What formats there are is in `tao.traces.formats`.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from tao.report.terminal import console_for_tables, shown
from tao.traces import (
    AUTO,
    FORMATS,
    SkippedLines,
    TraceError,
    TraceSession,
    format_named,
    path_named,
    read_trace,
    refuse,
)
from tao.traces.formats import TraceFormat
from tao.traces.select import sample_names, shortened
from tao.traces.stats import Spread, TraceStats, trace_stats

READABLE = [AUTO, *(one.name for one in FORMATS)]
WRITABLE = [one.name for one in FORMATS if one.write is not None]
TOOLS_SHOWN = 15

source_format = click.option(
    "--from",
    "from_format",
    type=click.Choice(READABLE),
    default=AUTO,
    show_default=True,
    help="Format of SOURCE.",
)
target_format = click.option(
    "--to",
    "to_format",
    type=click.Choice(WRITABLE),
    default="tao",
    show_default=True,
    help="Format to write.",
)
skip_option = click.option(
    "--skip-bad-lines", is_flag=True, help="Count bad lines and go on, instead of refusing the trace."
)


@click.group()
def command() -> None:
    """Convert, count and sample traces of agent sessions.

    SOURCE is a file (plain or gzip) or a folder of files; the word "sample" stands for the 40 sessions that
    come with tao. Logs of Claude Code and Codex are anonymised on reading: counts, names of built-in tools
    and first words of known commands are kept, nothing else. Exit code 2 for what cannot be read.
    """


@command.command()
@click.argument("source")
@click.argument("output")
@source_format
@target_format
@click.option(
    "--sessions", "sessions_max", type=click.IntRange(1), metavar="N", help="Take the first N sessions only."
)
@click.option(
    "--max-prompt-tokens", type=click.IntRange(1), metavar="TOKENS", help="Cut sessions before a longer turn."
)
@skip_option
def convert(
    *,
    source: str,
    output: str,
    from_format: str,
    to_format: str,
    sessions_max: int | None,
    max_prompt_tokens: int | None,
    skip_bad_lines: bool,
) -> None:
    """Read SOURCE and write OUTPUT in another format.

    OUTPUT is compressed if its name ends in .gz; - is the standard output. It may be SOURCE itself: a file is replaced
    when all of it is written, and stays as it was when anything goes wrong.
    """
    with _told_errors(skip_bad_lines) as skipped:
        sessions = read_trace(_path(source), trace_format=from_format, on_bad_line=skipped or refuse)
        cut = _limited(sessions, sessions_max, max_prompt_tokens)
        _write(format_named(to_format), Path(output), cut)


@command.command()
@click.argument("source")
@source_format
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@skip_option
def stats(*, source: str, from_format: str, as_json: bool, skip_bad_lines: bool) -> None:
    """Say what SOURCE holds.

    Sessions, turns, tokens, waits by tool, compactions, sub-agents.
    """
    with _told_errors(skip_bad_lines) as skipped:
        figures = trace_stats(
            read_trace(_path(source), trace_format=from_format, on_bad_line=skipped or refuse)
        )
    if as_json:
        click.echo(json.dumps(asdict(figures), indent=2))
        return
    console = console_for_tables()
    console.print(_sizes(figures))
    if figures.tool_seconds_by_name:
        console.print(_tools(figures))


@command.command()
@click.argument("source")
@click.argument("output")
@click.option(
    "--sessions", "count", type=click.IntRange(1), metavar="N", required=True, help="How many to draw."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the draw.")
@source_format
@target_format
@skip_option
def sample(
    *, source: str, output: str, count: int, seed: int, from_format: str, to_format: str, skip_bad_lines: bool
) -> None:
    """Draw sessions at random from SOURCE.

    Each is written to OUTPUT with its sub-agents.
    """
    with _told_errors(skip_bad_lines) as skipped:
        path = _path(source)
        first = SkippedLines() if skip_bad_lines else refuse
        names = sample_names(read_trace(path, trace_format=from_format, on_bad_line=first), count, seed)
        again = read_trace(path, trace_format=from_format, on_bad_line=skipped or refuse)
        _write(format_named(to_format), Path(output), (one for one in again if one.session_id in names))


def _path(source: str) -> Path:
    return path_named(source)


def _limited(
    sessions: Iterator[TraceSession], sessions_max: int | None, prompt_tokens_max: int | None
) -> Iterator[TraceSession]:
    taken = 0
    for session in sessions:
        if sessions_max is not None and taken == sessions_max:
            return
        kept = session if prompt_tokens_max is None else shortened(session, prompt_tokens_max)
        if kept is not None:
            taken += 1
            yield kept


def _write(target: TraceFormat, output: Path, sessions: Iterator[TraceSession]) -> None:
    assert target.write is not None  # only writable formats can be chosen
    count = target.write(output, sessions)
    click.echo(f"{output}: {count} sessions, format {target.name}", err=True)


@contextlib.contextmanager
def _told_errors(skip_bad_lines: bool) -> Iterator[SkippedLines | None]:
    """Bad input ends the command with code 2; skipped lines are told at the end."""
    skipped = SkippedLines() if skip_bad_lines else None
    try:
        yield skipped
    except TraceError as error:
        raise click.UsageError(str(error)) from error
    if skipped is not None and skipped.count:
        for bad in skipped.first:
            click.echo(f"skipped {bad}", err=True)
        click.echo(f"bad lines skipped: {skipped.count}", err=True)


def _sizes(figures: TraceStats) -> Table:
    table = Table(
        title=f"{figures.sessions} sessions ({figures.children} sub-agents), {figures.turns} turns, "
        f"compactions: {figures.compactions}"
    )
    _columns(table)
    for name, spread in (
        ("turns per session", figures.turns_per_session),
        ("prompt tokens", figures.prompt_tokens),
        ("longest prompt of a session", figures.peak_prompt_tokens),
        ("output tokens", figures.output_tokens),
        ("tool phase, seconds", figures.tool_seconds),
        ("human wait, seconds", figures.human_seconds),
    ):
        table.add_row(name, *_cells(spread))
    return table


def _tools(figures: TraceStats) -> Table:
    table = Table(title="Tool phases by tool, seconds")
    _columns(table)
    for name, spread in list(figures.tool_seconds_by_name.items())[:TOOLS_SHOWN]:
        table.add_row(shown(name), *_cells(spread))
    return table


def _columns(table: Table) -> None:
    table.add_column("")
    for heading in ("count", "total", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right")


def _cells(spread: Spread) -> list[str]:
    numbers = (spread.total, spread.p50, spread.p90, spread.p99, spread.max)
    return [
        f"{spread.count:,}",
        *(f"{number:,.2f}" if number < 100 else f"{number:,.0f}" for number in numbers),
    ]
