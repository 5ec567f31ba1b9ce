"""What `tao evaluate` does with a suite, by its kind: policies are run, solvers decide what was recorded.

Each kind makes an `Outcome`: a page, its figures and a table for the terminal. It must not know the command line's options,
nor where the outcome is written.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich import box
from rich.table import Table

from tao.cli.runs import read_sessions, run_with_progress
from tao.planning import SnapshotError, read_snapshot
from tao.planning.child import warm_up
from tao.planning.snapshot import SNAPSHOT_BYTES_MAX
from tao.report.decisionpage import joint_page, joint_rows
from tao.report.decisions import Decision, DecisionGroup, JointEvaluation, decide, tally
from tao.report.evaluation import CELLS, Evaluation, evaluation_of
from tao.report.page import page
from tao.report.statistics import Verdict
from tao.report.suite import AnySuite, Point, PolicySuite, SnapshotSuite, Suite, SuiteError, cases_of
from tao.report.terminal import shown
from tao.sim.processes import process_pool
from tao.sim.sweep import available_cores
from tao.traces import TraceSession, sample_path

TRACE_SUFFIXES = (".jsonl.gz", ".jsonl")
CHUNK = 16
"""Snapshots handed to a process at a time."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a suite is made with. `traces`: a folder; `snapshots`: a folder of recorded decisions in place of runs."""

    traces: Path | None
    snapshots: Path | None
    processes: int | None
    ray_address: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A suite that was made. `document`: the figures, as JSON."""

    html: str
    document: dict[str, object]
    table: Table
    violations: list[str]


def make(suite: AnySuite, resources: Resources, command_line: str, date: str) -> Outcome:
    """Make a suite. Raises ValueError for what cannot be made, and TraceError for a bad trace."""
    if isinstance(suite, PolicySuite):
        return _policies(suite, resources, command_line, date)
    return _solvers(suite, resources, command_line, date)


def _policies(suite: PolicySuite, resources: Resources, command_line: str, date: str) -> Outcome:
    if resources.snapshots is not None:
        raise SuiteError(f"--snapshots is for suites that compare solvers; {suite.name} compares policies")
    traces, stand_ins = _read_traces(suite, resources.traces)
    cases = list(cases_of(suite, {name: len(sessions) for name, sessions in traces.items()}))
    click.echo(f"{suite.name}: {len(cases)} runs", err=True)
    specs = [case.spec for case in cases]
    results = run_with_progress(
        specs, traces, resources.processes, resources.ray_address, lambda _: command_line
    )
    evaluation = evaluation_of(suite, cases, results, stand_ins)
    rows = [
        {
            "setting": point.point.setting.name,
            "variant": point.point.variant.name,
            "x": point.point.x,
            "is_floor": is_floor,
            **run.to_json_dict(),
            "policy": policy,  # as the suite names it, which may say more than what was run
        }
        for point in evaluation.points
        for is_floor, policy, run in (
            *((False, policy, run) for policy, runs in point.runs.items() for run in runs),
            *((True, run.spec.policy, run) for run in point.floors),
        )
    ]
    document = {"suite": suite.name, "seeds": suite.seeds, "stand_ins": stand_ins, "runs": rows}
    html = page(evaluation, command_line, date)
    return Outcome(html, document, _verdicts(evaluation), evaluation.violations)


def _solvers(suite: SnapshotSuite, resources: Resources, command_line: str, date: str) -> Outcome:
    stand_ins: dict[str, str] = {}
    if resources.snapshots is not None:
        groups = _decide_all(suite, _folders(resources.snapshots), resources.processes)
    else:
        with tempfile.TemporaryDirectory(prefix="tao-snapshots-") as folder:
            recorded, stand_ins = _record(suite, resources, Path(folder), command_line)
            groups = _decide_all(suite, recorded, resources.processes)
    evaluation = JointEvaluation(suite, groups, stand_ins)
    document: dict[str, object] = {
        "suite": suite.name,
        "seeds": suite.seeds,
        "stand_ins": stand_ins,
        "reference": suite.reference,
        "decisions": joint_rows(evaluation),
    }
    html = joint_page(evaluation, command_line, date)
    return Outcome(html, document, _who_is_behind(evaluation), evaluation.violations)


def _read_traces(suite: Suite, folder: Path | None) -> tuple[dict[str, list[TraceSession]], dict[str, str]]:
    """The traces by name, and what stands in for those that are missing."""
    traces: dict[str, list[TraceSession]] = {}
    stand_ins: dict[str, str] = {}
    for name in dict.fromkeys(name for setting in suite.settings for name in setting.traces):
        files = [folder / f"{name}{suffix}" for suffix in TRACE_SUFFIXES] if folder is not None else []
        found = next((file for file in files if file.exists()), None)
        if found is None:
            stand_ins[name] = "the bundled sample of 40 sessions, played repeatedly"
            click.echo(f"trace {name} not found: {stand_ins[name]} stands in", err=True)
        traces[name] = read_sessions(str(found or sample_path()))
    return traces, stand_ins


def _record(
    suite: SnapshotSuite, resources: Resources, folder: Path, command_line: str
) -> tuple[list[tuple[str, list[Path]]], dict[str, str]]:
    """Make the suite's runs; the snapshots of each by its title."""
    traces, stand_ins = _read_traces(suite, resources.traces)
    cases = list(cases_of(suite, {name: len(sessions) for name, sessions in traces.items()}))
    click.echo(f"{suite.name}: {len(cases)} runs", err=True)
    homes = [folder / str(number) for number in range(len(cases))]
    specs = [replace(case.spec, snapshots_dir=str(home)) for case, home in zip(cases, homes, strict=True)]
    run_with_progress(specs, traces, resources.processes, repeat=lambda _: command_line)
    titles = [
        f"{case.point.setting.name}, {_told(case.point, suite.sweeps)}, {case.policy}" for case in cases
    ]
    titles = [
        f"{title}, seed {case.seed}" if suite.seeds > 1 else title
        for title, case in zip(titles, cases, strict=True)
    ]
    return [(title, _files(home)) for title, home in zip(titles, homes, strict=True)], stand_ins


def _told(point: Point, sweeps: str) -> str:
    """What sets a point apart from the others of its setting."""
    load = f"{point.concurrency} workers" if sweeps == "variants" else f"{point.x} {sweeps}"
    return load if len(point.setting.variants) == 1 else f"{load}, {point.variant.name}"


def _folders(root: Path) -> list[tuple[str, list[Path]]]:
    """The snapshots below a folder, grouped by the folder they lie in."""
    if not root.is_dir():
        raise SuiteError(f"--snapshots: {root} is no folder")
    found: dict[Path, list[Path]] = {}
    for file in _files(root):
        found.setdefault(file.parent, []).append(file)
    if not found:
        raise SuiteError(
            f"--snapshots: {root} holds no .json file; tao serve and tao simulate write them by --record-snapshots"
        )
    return [(str(home.relative_to(root.parent)), files) for home, files in found.items()]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json")) if folder.exists() else []


def _decide_all(
    suite: SnapshotSuite, recorded: Sequence[tuple[str, list[Path]]], processes: int | None
) -> tuple[DecisionGroup, ...]:
    """Every solver on every snapshot, spread over processes; the order is that of the files."""
    jobs = [(file, suite.solvers) for _, files in recorded for file in files]
    click.echo(f"{suite.name}: {len(jobs)} decisions by {len(suite.solvers)} solvers", err=True)
    with process_pool(processes or available_cores(), warm_up) as pool:
        chunks = [pool.submit(_decide_some, jobs[at : at + CHUNK]) for at in range(0, len(jobs), CHUNK)]
        decisions = [decision for chunk in chunks for decision in chunk.result()]
    groups = []
    for title, files in recorded:
        groups.append(DecisionGroup(title, tuple(decisions[: len(files)])))
        decisions = decisions[len(files) :]
    return tuple(groups)


def _decide_some(jobs: Sequence[tuple[Path, Sequence[str]]]) -> list[Decision]:
    return [_decide(job) for job in jobs]


def _decide(job: tuple[Path, Sequence[str]]) -> Decision:
    file, solvers = job
    try:
        with file.open("rb") as opened:
            problem = read_snapshot(opened.read(SNAPSHOT_BYTES_MAX + 1))
    except (SnapshotError, OSError) as error:
        raise SuiteError(f"{file}: {error}") from None
    return decide(file.name, problem, solvers)


def _verdicts(evaluation: Evaluation) -> Table:
    table = Table(title=shown(evaluation.suite.title), title_justify="left", box=box.SIMPLE_HEAD)
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
        table.add_row(shown(policy), *(str(score[verdict]) for verdict in Verdict), *by_metric)
    return table


def _who_is_behind(evaluation: JointEvaluation) -> Table:
    """For each group and solver the share of decisions in which the reference keeps more."""
    reference = evaluation.suite.reference
    others = [solver for solver in evaluation.suite.solvers if solver != reference]
    table = Table(
        title=f"{shown(evaluation.suite.title)}: behind {reference}, of decisions with several candidates",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("recorded from")
    for heading in ("decisions", "several", "contested", *others):
        table.add_column(heading, justify="right")
    groups = evaluation.groups if len(evaluation.groups) == 1 else (*evaluation.groups, evaluation.together)
    for group in groups:
        several = group.several()
        tallies = [tally(several, solver, reference) for solver in others]
        shares = ["-" if t.worse_share is None else f"{100 * t.worse_share:.1f} %" for t in tallies]
        counts = (len(group.decisions), len(several), len(group.contested(reference)))
        table.add_row(shown(group.title), *map(str, counts), *shares)
    return table
