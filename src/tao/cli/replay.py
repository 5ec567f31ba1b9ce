"""`tao replay`: the load client on the command line. Options in, a progress bar, a table and a JSON file out.

What a replay does is in `tao.replay`, what its figures mean in `tao.record.summary`; this file only wires and
shows.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tao.cli.span import seconds_range
from tao.record.summary import Distribution, RunSummary, summarise
from tao.replay import EndpointError, Replay, ReplayConfig, ReplayProgress, ToldOfTools
from tao.replay.progress import OnProgress
from tao.traces import Selection, SkippedLines, TraceError, path_named, read_trace, refuse, select_sessions

INTERRUPTED = 130
LAG_SECONDS_WORTH_A_WORD = 0.5


@click.command()
@click.argument("trace")
@click.option("--target", required=True, metavar="URL", help="Endpoint, such as http://127.0.0.1:8000.")
@click.option("--concurrency", default=8, show_default=True, help="Sessions run at a time (closed loop).")
@click.option(
    "--speed", default=1.0, show_default=True, help="Model seconds per second; for emulated replicas."
)
@click.option("--json", "json_path", metavar="OUT", help="Write the figures to this file; - for the output.")
@click.option("--sessions", "sessions_max", type=click.IntRange(1), help="Use the first N sessions only.")
@click.option("--shuffle", is_flag=True, help="Put the sessions in an order chosen by --seed first.")
@click.option("--seed", default=0, show_default=True, help="Seed of texts, order and retry pauses.")
@click.option("--model", help="Model name to ask for.  [default: the first of /v1/models]")
@click.option("--human-wait-max", default=30.0, show_default=True, help="Cap on each human wait, model s.")
@click.option("--max-prompt-tokens", type=click.IntRange(1), help="Cut sessions before a longer turn.")
@click.option("--system-tokens", default=0, show_default=True, help="Shared system prompt if none recorded.")
@click.option("--chars-per-token", type=float, help="Fixed ratio for text lengths.  [default: learned]")
@click.option("--timeout", default=900.0, show_default=True, help="Deadline of one attempt, real seconds.")
@click.option("--retries", default=5, show_default=True, help="Attempts after a first that failed.")
@click.option("--api-key", envvar="TAO_API_KEY", help="Sent as bearer token.  [env: TAO_API_KEY]")
@click.option(
    "--session-header", default="X-Session-ID", show_default=True, help="Header with the id; none = not sent."
)
@click.option("--session-field", metavar="NAME", help="Field of each request's body with the id as well.")
@click.option("--release-path", metavar="PATH", help="Where that field is posted when a session has ended.")
@click.option("--final-header", metavar="NAME", help="Header sent with a session's last turn.")
@click.option(
    "--tell-tools",
    type=click.Choice([told.value for told in ToldOfTools]),
    default=ToldOfTools.NOTHING.value,
    show_default=True,
    help="Report to TAO's tools API when a tool starts: its name, or also when it returns.",
)
@click.option(
    "--tool-delay",
    callback=seconds_range,
    metavar="MIN:MAX",
    help="One fixed extra delay of each session's tools, drawn by --seed.",
)
@click.option(
    "--run-id", default="", help="Put before ids and into texts: a repeated run finds no warm cache."
)
@click.option(
    "--skip-bad-lines", is_flag=True, help="Count bad lines and go on, instead of refusing the trace."
)
def command(  # noqa: PLR0917 - click passes options as they are named
    trace: str,
    target: str,
    concurrency: int,
    speed: float,
    json_path: str | None,
    sessions_max: int | None,
    shuffle: bool,
    seed: int,
    model: str | None,
    human_wait_max: float,
    max_prompt_tokens: int | None,
    system_tokens: int,
    chars_per_token: float | None,
    timeout: float,
    retries: int,
    api_key: str | None,
    session_header: str,
    session_field: str | None,
    release_path: str | None,
    final_header: str | None,
    tell_tools: str,
    tool_delay: tuple[float, float] | None,
    run_id: str,
    skip_bad_lines: bool,
) -> None:
    """Replay the sessions of TRACE against an OpenAI-compatible endpoint and measure them.

    TRACE is a trace in any format that tao reads, or the word "sample" for the 40 sessions that come with
    tao. Workers run one session after another: prompts of the recorded length that extend one another,
    answers of the recorded length, real waiting for tools. All figures are model seconds: real time times
    --speed.

    Exit code: 0, also with failed turns (they are counted); 1 if the endpoint is unusable or every session
    failed; 2 for bad input; 130 after Ctrl-C, with the figures so far.
    """
    try:
        config = ReplayConfig(
            target=target,
            concurrency=concurrency,
            speed=speed,
            model=model,
            human_wait_seconds_max=human_wait_max,
            system_tokens=system_tokens,
            chars_per_token=chars_per_token,
            turn_wall_seconds_max=timeout,
            retries_max=retries,
            api_key=api_key,
            session_header=None if session_header.lower() == "none" else session_header,
            session_field=session_field,
            release_path=release_path,
            final_header=final_header,
            run_id=run_id,
            seed=seed,
            told_of_tools=ToldOfTools(tell_tools),
            tool_delay_seconds=tool_delay,
        )
        skipped = SkippedLines()
        chosen = select_sessions(
            read_trace(path_named(trace), on_bad_line=skipped if skip_bad_lines else refuse),
            count_max=sessions_max,
            seed=seed if shuffle else None,
            prompt_tokens_max=max_prompt_tokens,
        )
        if not chosen.sessions:
            raise click.UsageError(f"{trace}: no session is left to replay")
    except (ValueError, TraceError) as error:
        raise click.UsageError(str(error)) from error
    _replay(config, chosen, skipped, trace=trace, json_path=json_path)


def _replay(
    config: ReplayConfig, chosen: Selection, skipped: SkippedLines, *, trace: str, json_path: str | None
) -> None:
    _say_what_was_left_out(chosen, skipped)
    interrupted = False
    with _progress_bar(Console(stderr=True)) as on_progress:
        run = Replay(config, chosen.sessions, on_progress)
        try:
            asyncio.run(run.run())
        except KeyboardInterrupt:
            interrupted = True
        except EndpointError as error:
            raise click.ClickException(str(error)) from error
    summary = summarise(run.measurements, workers=config.concurrency)
    row: dict[str, object] = {
        "trace": trace,
        "target": config.target,
        "model": run.model,
        "concurrency": config.concurrency,
        "speed": config.speed,
        "seed": config.seed,
        "interrupted": interrupted,
        "sessions_shortened": chosen.sessions_shortened,
        "sessions_dropped": chosen.sessions_dropped,
        "lines_skipped": skipped.count,
        "tool_delay_seconds": config.tool_delay_seconds,
        "told_of_tools": config.told_of_tools.value,
        "tool_reports_failed": run.reports_failed,
        "client_lag_seconds_max": run.lag_seconds_max,
        **summary.to_json_dict(),
    }
    if json_path is not None:
        _write_json(json_path, row)
    if json_path != "-":
        Console().print(summary_table(summary))
    _say_failures(run, summary, interrupted=interrupted)
    if interrupted:
        sys.exit(INTERRUPTED)
    if summary.sessions and summary.sessions_failed == summary.sessions:
        sys.exit(1)


def _write_json(json_path: str, row: dict[str, object]) -> None:
    text = json.dumps(row, indent=2, allow_nan=False) + "\n"
    if json_path == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(json_path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {json_path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _progress_bar(console: Console) -> Iterator[OnProgress | None]:
    if not console.is_terminal:
        yield None
        return
    with Progress(
        TextColumn("sessions"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("replay", total=None, figures="connecting")

        def show(progress: ReplayProgress) -> None:
            bar.update(
                task,
                total=progress.sessions,
                completed=progress.sessions_done + progress.sessions_failed,
                figures=_figures(progress),
            )

        yield show


def _figures(progress: ReplayProgress) -> str:
    hit = f"{progress.cached_tokens / progress.prompt_tokens:.0%}" if progress.prompt_tokens else "-"
    failed = f" · {progress.sessions_failed} failed" if progress.sessions_failed else ""
    return (
        f"{progress.turns_done}/{progress.turns} turns · {progress.turns_in_flight} in flight · "
        f"hits {hit}{failed} · {progress.at_seconds:.0f} model s"
    )


def _say_what_was_left_out(chosen: Selection, skipped: SkippedLines) -> None:
    if chosen.sessions_shortened or chosen.sessions_dropped:
        _say(
            f"sessions cut short: {chosen.sessions_shortened}, left out: {chosen.sessions_dropped}; "
            "longer prompts than --max-prompt-tokens"
        )
    for bad in skipped.first:
        _say(f"skipped {bad}")
    if skipped.count:
        _say(f"bad lines skipped: {skipped.count}")


def _say_failures(run: Replay, summary: RunSummary, *, interrupted: bool) -> None:
    if interrupted:
        _say("interrupted: the figures are of the turns that had ended")
    for kind in sorted(run.failures):
        failed, retried = summary.errors.get(kind, 0), summary.retries.get(kind, 0)
        _say(
            f"{kind}: turns failed {failed}, attempts repeated {retried}; the first said: {run.failures[kind]}"
        )
    if summary.turns and not summary.prompt_tokens:
        _say("the endpoint reports no usage: no hit rate and no throughput can be given")
    if run.reports_failed:
        _say(f"reports of tools that the endpoint did not take: {run.reports_failed}")
    if run.lag_seconds_max > LAG_SECONDS_WORTH_A_WORD:
        _say(
            f"this client noticed the end of a wait up to {run.lag_seconds_max:.1f} model s late: "
            "lower --speed or --concurrency for exact figures"
        )


def _say(line: str) -> None:
    click.echo(line, err=True)


def summary_table(summary: RunSummary) -> Table:
    """The figures of one run, for a terminal."""
    table = Table(title="Replay (model seconds)")
    for heading in ("", "mean", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in (
        ("session latency", summary.latency_seconds),
        ("time to first token, from arrival", summary.ttft_seconds),
        ("tool end to first token", summary.tool_end_to_first_token_seconds),
        ("hold", summary.hold_seconds),
    ):
        table.add_row(name, *_cells(values))
    table.add_section()
    for name, value in (
        ("sessions (failed)", f"{summary.sessions} ({summary.sessions_failed})"),
        ("turns (failed)", f"{summary.turns} ({summary.turns_failed})"),
        ("prefix hit rate", _cell(summary.prefix_hit_rate, "{:.1%}")),
        ("decode tokens/s, all workers busy", _cell(summary.decode_tokens_per_second, "{:.0f}")),
        ("decode tokens/s, whole run", _cell(summary.decode_tokens_per_second_overall, "{:.0f}")),
        ("makespan", f"{summary.makespan_seconds:.1f}"),
    ):
        table.add_row(name, value)
    return table


def _cells(values: Distribution) -> list[str]:
    numbers = (values.mean, values.p50, values.p90, values.p99, values.max)
    return [_cell(number, "{:.2f}") for number in numbers]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
