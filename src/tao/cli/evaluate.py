"""`tao evaluate`: a suite of simulated runs, and a report of what each policy wins, ties and loses.

Suites are data (`tao.report.suite`); what is compared, and how, is in `tao.report.evaluation`. This file only wires.
"""

import datetime
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.table import Table

from tao.cli.runs import read_sessions, run_with_progress, write_text
from tao.report.evaluation import CELLS, Evaluation, evaluation_of
from tao.report.figures import PlotsMissingError, require_plots
from tao.report.page import page
from tao.report.statistics import Verdict
from tao.report.suite import Suite, cases_of, load_suite, made_small, suite_names, with_seeds
from tao.report.terminal import console_for_tables
from tao.traces import TraceError, TraceSession, sample_path

TRACES_BESIDE = Path("../shared/traces")
SUFFIXES = (".jsonl.gz", ".jsonl")


@click.command()
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@click.option(
    "--quick", is_flag=True, help="A small form of the suite: minutes, and no more than an impression."
)
@click.option(
    "--traces",
    "traces_dir",
    type=click.Path(path_type=Path),
    help=f"Folder with the traces.  [default: {TRACES_BESIDE} where it exists]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="Folder to write to.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), help="Seeds for each run, instead of the suite's.")
@click.option("--processes", type=click.IntRange(1), help="Processes to use.  [default: all cores]")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Spread the runs over this Ray cluster.")
def command(  # noqa: PLR0917 - click passes options as they are named
    suites: tuple[str, ...],
    quick: bool,
    traces_dir: Path | None,
    out: Path,
    seeds: int | None,
    processes: int | None,
    ray_address: str | None,
) -> None:
    """Run suites of simulations and write a report of each: SUITE.html (self-contained) and SUITE.json.

    SUITE is a name, `all`, or a TOML file of your own. Suites name the traces they need; where one is missing the
    sample that comes with tao stands in, and the report says so.

    Exit code: 0; 1 if a run breaks off or a checker finds something wrong; 2 for bad input; 130 after Ctrl-C.
    """
    try:
        require_plots()
        names = suite_names() if suites == ("all",) else suites
        chosen = [(name, load_suite(name)) for name in names]
        folder = _traces_folder(traces_dir)
        sound = True
        for name, suite in chosen:
            sized = made_small(suite) if quick else suite
            seeded = sized if seeds is None else with_seeds(sized, seeds)
            evaluation = _evaluate(seeded, folder, processes, ray_address)
            _write(evaluation, _command_line(name, quick=quick, traces=traces_dir, seeds=seeds), out)
            _show(evaluation)
            sound &= not evaluation.violations
    except (ValueError, TraceError, PlotsMissingError) as error:
        raise click.UsageError(str(error)) from error
    if not sound:
        sys.exit(1)


def _traces_folder(given: Path | None) -> Path | None:
    if given is not None and not given.is_dir():
        raise click.UsageError(f"--traces: {given} is no folder")
    if given is None and TRACES_BESIDE.is_dir():
        return TRACES_BESIDE
    return given


def _command_line(name: str, *, quick: bool, traces: Path | None, seeds: int | None) -> str:
    """What makes the report again."""
    parts = ["tao", "evaluate", name]
    parts += ["--quick"] if quick else []
    parts += ["--traces", str(traces)] if traces is not None else []
    parts += ["--seeds", str(seeds)] if seeds is not None else []
    return shlex.join(parts)


def _evaluate(
    suite: Suite, folder: Path | None, processes: int | None, ray_address: str | None
) -> Evaluation:
    names = list(dict.fromkeys(name for setting in suite.settings for name in setting.traces))
    traces, stand_ins = _read_all(names, folder)
    cases = list(cases_of(suite, {name: len(sessions) for name, sessions in traces.items()}))
    click.echo(f"{suite.name}: {len(cases)} runs", err=True)
    results = run_with_progress([case.spec for case in cases], traces, processes, ray_address)
    return evaluation_of(suite, cases, results, stand_ins)


def _read_all(
    names: Sequence[str], folder: Path | None
) -> tuple[dict[str, list[TraceSession]], dict[str, str]]:
    """The traces by name, and what stands in for those that are missing."""
    traces: dict[str, list[TraceSession]] = {}
    stand_ins: dict[str, str] = {}
    for name in names:
        files = [folder / f"{name}{suffix}" for suffix in SUFFIXES] if folder is not None else []
        found = next((file for file in files if file.exists()), None)
        if found is None:
            stand_ins[name] = "the bundled sample of 40 sessions, played repeatedly"
            click.echo(f"trace {name} not found: {stand_ins[name]} stands in", err=True)
        traces[name] = read_sessions(str(found or sample_path()))
    return traces, stand_ins


def _write(evaluation: Evaluation, command_line: str, out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot write to {out}: {error.strerror or error}") from error
    name = evaluation.suite.name
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    write_text(str(out / f"{name}.html"), page(evaluation, command_line, date))
    rows = [
        {
            "setting": point.point.setting.name,
            "variant": point.point.variant.name,
            "x": point.point.x,
            "is_floor": is_floor,
            **run.to_json_dict(),
        }
        for point in evaluation.points
        for is_floor, run in (
            *((False, run) for runs in point.runs.values() for run in runs),
            *((True, run) for run in point.floors),
        )
    ]
    document = {
        "suite": name,
        "seeds": evaluation.suite.seeds,
        "stand_ins": evaluation.stand_ins,
        "runs": rows,
    }
    write_text(str(out / f"{name}.json"), json.dumps(document, indent=1, allow_nan=False) + "\n")
    click.echo(f"wrote {out / name}.html and {out / name}.json", err=True)


def _show(evaluation: Evaluation) -> None:
    table = Table(title=evaluation.suite.title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("policy", "wins", "ties", "losses", *(f"{metric.title} w/t/l" for metric in CELLS)):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in evaluation.policies:
        score = evaluation.score(policy)
        cells = evaluation.cells(policy)
        by_metric = [
            "/".join(
                str(sum(c.metric is metric and c.comparison.verdict is verdict for c in cells))
                for verdict in Verdict
            )
            for metric in CELLS
        ]
        table.add_row(policy, *(str(score[verdict]) for verdict in Verdict), *by_metric)
    console_for_tables().print(table)
    for violation in evaluation.violations:
        click.echo(violation, err=True)
