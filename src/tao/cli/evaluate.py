"""`tao evaluate`: a suite of simulated runs, and a report of what each policy wins, ties and loses.

Suites are data (`tao.report.suite`); what is done with one is in `tao.cli.suites`. This file reads the command line and
writes files.
"""

import datetime
import json
import shlex
import sys
from pathlib import Path

import click

from tao.cli.runs import make_folder, write_text
from tao.cli.suites import Outcome, Resources, make
from tao.report.figures import PlotsMissingError, require_plots
from tao.report.quick import made_small
from tao.report.suite import load_suite, suite_names, with_seeds
from tao.report.terminal import console_for_tables
from tao.traces import TraceError

TRACES_BESIDE = Path("../shared/traces")
QUICK_SUFFIX = "-quick"
"""Of the files of a small form: it must not replace the figures of a whole run, which took hours."""


@click.command()
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@click.option(
    "--quick", is_flag=True, help="A small form of the suite: minutes, and no more than an impression."
)
@click.option(
    "--traces",
    "traces_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Folder with the traces.  [default: {TRACES_BESIDE} where it exists]",
)
@click.option(
    "--snapshots",
    "snapshots_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="For the suite joint: decide the recorded decisions in this folder, instead of simulating.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("reports"),
    show_default=True,
    help="Folder to write to.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), metavar="N", help="Seeds for each run, instead of the suite's."
)
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", help="Processes to use.  [default: all cores]"
)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Spread the runs over this Ray cluster.")
def command(  # noqa: PLR0917 - click passes options as they are named
    suites: tuple[str, ...],
    quick: bool,
    traces_dir: Path | None,
    snapshots_dir: Path | None,
    out: Path,
    seeds: int | None,
    processes: int | None,
    ray_address: str | None,
) -> None:
    """Run suites of simulations and write a report of each: SUITE.html (self-contained) and SUITE.json, with --quick
    SUITE-quick.html and SUITE-quick.json.

    SUITE is a name (ablation, cache, joint, knee, low-concurrency, main, mixed, overload, readiness, scale, sensitivity),
    `all`, or a TOML file of your own. Suites name the traces they need; where one is missing the
    sample that comes with tao stands in, and the report says so.

    Exit code: 0; 1 if a run breaks off or a checker finds something wrong; 2 for bad input; 130 after Ctrl-C.
    """
    try:
        require_plots()
        names = suite_names() if suites == ("all",) else suites
        chosen = [(name, load_suite(name)) for name in names]
        _check_names([suite.name for _, suite in chosen])
        resources = Resources(_traces_folder(traces_dir), snapshots_dir, processes, ray_address)
        make_folder(out)
        sound = True
        for name, suite in chosen:
            sized = made_small(suite) if quick else suite
            seeded = sized if seeds is None else with_seeds(sized, seeds)
            given = _command_line(name, quick=quick, traces=traces_dir, snapshots=snapshots_dir, seeds=seeds)
            date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
            outcome = make(seeded, resources, given, date)
            _write(f"{seeded.name}{QUICK_SUFFIX}" if quick else seeded.name, outcome, out)
            console_for_tables().print(outcome.table)
            for violation in outcome.violations:
                click.echo(violation, err=True)
            click.echo(f"to repeat: {given}")
            sound &= not outcome.violations
    except (ValueError, TraceError, PlotsMissingError) as error:
        raise click.UsageError(str(error)) from error
    if not sound:
        sys.exit(1)


def _check_names(names: list[str]) -> None:
    """A report is named after its suite: one would replace another."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise click.UsageError(
            f"two suites are named {twice[0]!r}: the report of one would replace the other's"
        )


def _traces_folder(given: Path | None) -> Path | None:
    if given is not None and not given.is_dir():
        raise click.UsageError(f"--traces: {given} is no folder")
    if given is None and TRACES_BESIDE.is_dir():
        return TRACES_BESIDE
    return given


def _command_line(
    name: str, *, quick: bool, traces: Path | None, snapshots: Path | None, seeds: int | None
) -> str:
    """What makes the report again."""
    parts = ["tao", "evaluate", name]
    parts += ["--quick"] if quick else []
    parts += ["--traces", str(traces)] if traces is not None else []
    parts += ["--snapshots", str(snapshots)] if snapshots is not None else []
    parts += ["--seeds", str(seeds)] if seeds is not None else []
    return shlex.join(parts)


def _write(name: str, outcome: Outcome, out: Path) -> None:
    write_text(str(out / f"{name}.html"), outcome.html)
    write_text(str(out / f"{name}.json"), json.dumps(outcome.document, indent=1, allow_nan=False) + "\n")
    click.echo(f"wrote {out / name}.html and {out / name}.json", err=True)
