"""What the commands that simulate share: traces read, runs made behind a progress bar, results written.

It knows how runs are asked for and told of on a terminal; what they are is in `tao.sim`.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tao.sim.cluster import run_all_on_ray
from tao.sim.run import RunFailedError, RunResult, RunSpec
from tao.sim.sweep import OnTurns, Traces, expected_turns, run_all
from tao.sim.workload import ClosedLoop
from tao.traces import SkippedLines, TraceError, TraceSession, path_named, read_trace, refuse
from tao.traces.lines import open_output

SAMPLE = "sample"
QUIET_SECONDS = 60.0


def read_sessions(name: str, skipped: SkippedLines | None = None) -> list[TraceSession]:
    """The sessions of a file, or of the sample; bad lines are counted in `skipped`, refused where that is None."""
    return list(read_trace(path_named(name), on_bad_line=refuse if skipped is None else skipped))


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


def run_with_progress(
    specs: Sequence[RunSpec],
    traces: Traces,
    processes: int | None,
    ray_address: str | None = None,
    repeat: Callable[[RunSpec], str] = repeat_command,
) -> list[RunResult]:
    """Run all, with a bar where a person looks on, else with a line for each tenth.

    A run that breaks off ends the command with exit code 1 and the command that repeats it.
    """
    turns = sum(map(partial(expected_turns, traces=traces), specs))
    try:
        with _progress_bar(Console(stderr=True), turns, len(specs)) as on_turns:
            if ray_address is not None:
                return run_all_on_ray(specs, traces, ray_address, on_turns)
            return run_all(specs, traces, processes, on_turns)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    except RunFailedError as error:
        raise click.ClickException(f"a run broke off: {error}\nTo repeat: {repeat(error.spec)}") from error


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


def check_output(path: str | None, read: Sequence[str | Path] = ()) -> None:
    """Before hours of runs: can this file be written, and is it none of those that are read? Raises click.UsageError."""
    if path is None or path == "-":
        return
    file = Path(path)
    for name in read:
        if file.exists() and Path(name).exists() and file.samefile(name):
            raise click.UsageError(f"{path} is to be written and is read: name another file")
    folder = file.parent
    if file.is_dir():
        raise click.UsageError(f"cannot write {path}: it is a folder")
    if not folder.is_dir():
        raise click.UsageError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise click.UsageError(f"cannot write {path}: permission denied")


def make_folder(path: Path) -> None:
    """Before hours of runs: make the folder that their outcome is written to. Raises click.UsageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"cannot make the folder {path}: {error.strerror or error}") from error
    if not os.access(path, os.W_OK):
        raise click.UsageError(f"cannot write into {path}: permission denied")


def write_text(path: str, text: str) -> None:
    """Write to a file, which is replaced when all is written; `-` is the output. Exit code 1 if that cannot be done."""
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        with open_output(Path(path)) as stream:
            stream.write(text.encode())
    except TraceError as error:
        raise click.ClickException(str(error)) from error


class ProgressLines:
    """Tells on stderr how far it is, one line for each tenth of the turns; nothing of what takes less than a minute.

    `seconds`: a clock; time began when this was made.
    """

    def __init__(self, turns: float, seconds: Callable[[], float] = monotonic) -> None:
        self._turns = max(turns, 1.0)
        self._seconds = seconds
        self._began = seconds()
        self._told_tenths = 0

    def __call__(self, ended: Sequence[int]) -> None:
        share = min(1.0, sum(ended) / self._turns)
        tenths = int(10 * share)
        elapsed_seconds = self._seconds() - self._began
        if tenths <= self._told_tenths or elapsed_seconds < QUIET_SECONDS:
            return
        self._told_tenths = tenths
        left_minutes = elapsed_seconds * (1.0 / share - 1.0) / 60
        click.echo(
            f"{100 * share:.0f} % of about {self._turns:,.0f} turns after {elapsed_seconds / 60:.1f} min; "
            f"about {left_minutes:.0f} min to go",
            err=True,
        )


@contextlib.contextmanager
def _progress_bar(console: Console, turns: float, runs: int) -> Iterator[OnTurns]:
    if not console.is_terminal:
        yield ProgressLines(turns)
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
