"""What the commands that simulate share: traces read, runs made behind a progress bar, results written.

It knows how runs are asked for and told of on a terminal; what they are is in `tao.sim`.
"""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tao.sim.cluster import run_all_on_ray
from tao.sim.run import RunResult, RunSpec
from tao.sim.sweep import OnTurns, RunFailedError, Traces, run_all
from tao.sim.workload import ClosedLoop
from tao.traces import SkippedLines, TraceSession, read_trace, refuse, sample_path

INTERRUPTED = 130
SAMPLE = "sample"


def read_sessions(name: str, skipped: SkippedLines | None = None) -> list[TraceSession]:
    """The sessions of a file, or of the sample; bad lines are counted in `skipped`, refused where that is None."""
    path = sample_path() if name == SAMPLE else Path(name)
    return list(read_trace(path, on_bad_line=refuse if skipped is None else skipped))


def run_with_progress(
    specs: Sequence[RunSpec], traces: Traces, processes: int | None, ray_address: str | None = None
) -> list[RunResult]:
    """Run all, with a bar where a person looks on. A run that breaks off ends the command with exit code 1."""
    turns = sum(map(partial(expected_turns, traces=traces), specs))
    try:
        with _progress_bar(Console(stderr=True), turns, len(specs)) as on_turns:
            if ray_address is not None:
                return run_all_on_ray(specs, traces, ray_address, on_turns)
            return run_all(specs, traces, processes, on_turns)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    except RunFailedError as error:
        raise click.ClickException(
            f"a run broke off: {error}\nTo repeat: {repeat_command(error.spec)}"
        ) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


def repeat_command(spec: RunSpec) -> str:
    """The options that repeat this one run, added to the command line as it was given."""
    load = (
        f"--concurrency {spec.arrivals.workers}"
        if isinstance(spec.arrivals, ClosedLoop)
        else f"--arrival-rate {spec.arrivals.rate_per_second!r}"
    )
    skip = ("--policy", "--concurrency", "--arrival-rate", "--seed", "--json", "--processes")
    given = " ".join(_without(sys.argv[1:], skip))
    return f"tao {given} --policy {spec.policy} {load} --seed {spec.seed}"


def _without(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command line without these options and their values."""
    kept: list[str] = []
    drop_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if drop_next:
            drop_next = False
        elif name in options:
            drop_next = not equals
        else:
            kept.append(shlex.quote(argument))
    return kept


def write_text(path: str, text: str) -> None:
    """Write to a file; `-` is the output. What cannot be written ends the command with exit code 1."""
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error


def expected_turns(spec: RunSpec, traces: Traces) -> float:
    """How many turns a run will have, where its sessions are as long as the traces' on average."""
    sessions = [session for name in spec.traces for session in traces[name]]
    turns = sum(len(session.turns) for session in sessions)
    played = spec.order.fitted or len(sessions) * spec.order.repeats
    return turns * min(spec.order.count_max or played, played) / max(len(sessions), 1)


@contextlib.contextmanager
def _progress_bar(console: Console, turns: float, runs: int) -> Iterator[OnTurns | None]:
    if not console.is_terminal:
        yield None
        return
    with Progress(
        TextColumn(f"{runs} runs"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of about {task.total:,.0f} turns"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("simulate", total=turns)
        yield lambda ended: bar.update(task, completed=sum(ended))
