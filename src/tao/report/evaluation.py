"""The runs of a suite, grouped by point: figures with intervals, comparisons, shares of the way to the floor.

Pure: cases and results in, numbers out. It must not know how they are shown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tao.report.bounds import REFERENCES, recovered_share
from tao.report.statistics import Comparison, Estimate, Verdict, compare, estimate
from tao.report.suite import Case, Point, PolicySuite
from tao.sim.run import RunResult


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run. `in_cells`: whether wins and losses are counted by it."""

    key: str
    title: str
    unit: str
    value: Callable[[RunResult], float | None]
    less_is_better: bool = True
    in_cells: bool = False
    digits: int = 1


def _decode_rate(run: RunResult) -> float | None:
    rate = run.summary.decode_tokens_per_second
    return rate if rate is not None else run.summary.decode_tokens_per_second_overall


METRICS = (
    Metric("latency", "session latency, mean", "s", lambda r: r.summary.latency_seconds.mean, in_cells=True),
    Metric(
        "ttft",
        "time to first token, mean",
        "s",
        lambda r: r.summary.ttft_seconds.mean,
        in_cells=True,
        digits=3,
    ),
    Metric(
        "decode", "decode throughput", "tok/s", _decode_rate, less_is_better=False, in_cells=True, digits=0
    ),
    Metric("latency_p99", "session latency, p99", "s", lambda r: r.summary.latency_seconds.p99, digits=0),
    Metric(
        "tool_end",
        "tool end to first token, mean",
        "s",
        lambda r: r.summary.tool_end_to_first_token_seconds.mean,
        digits=3,
    ),
    Metric("hold", "longest hold", "s", lambda r: r.summary.hold_seconds.max, digits=0),
    Metric("hit", "prefix hit rate", "", lambda r: r.summary.prefix_hit_rate, less_is_better=False, digits=3),
    Metric("interrupts", "interrupts", "", lambda r: float(r.counts.interrupts), digits=0),
    Metric("migrations", "migrations", "", lambda r: float(r.counts.migrations), digits=0),
    Metric("forced", "forced placements", "", lambda r: float(r.counts.forced_placements), digits=0),
    Metric(
        "planning",
        "planning, share of time",
        "%",
        lambda r: (
            100.0 * r.planner.seconds / r.summary.makespan_seconds if r.summary.makespan_seconds else None
        ),
        digits=3,
    ),
    Metric("failed", "sessions failed", "", lambda r: float(r.summary.sessions_failed), digits=0),
)
CELLS = tuple(metric for metric in METRICS if metric.in_cells)


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy at one point under one metric, against the best baseline there other than itself."""

    metric: Metric
    policy: str
    opponent: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class PointResult:
    """All runs of one point: by policy in the order of seeds, and the floors in that order."""

    point: Point
    runs: dict[str, list[RunResult]]
    floors: list[RunResult]
    baselines: tuple[str, ...]

    def values(self, policy: str, metric: Metric) -> list[float]:
        """One value a seed; empty where a seed has none."""
        values = [metric.value(run) for run in self.runs[policy]]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    def figure(self, policy: str, metric: Metric) -> Estimate | None:
        """Mean and interval over the seeds."""
        return estimate(self.values(policy, metric))

    def floor(self, metric: Metric) -> Estimate | None:
        """The same with unlimited memory."""
        values = [metric.value(run) for run in self.floors]
        return estimate([value for value in values if value is not None])

    def recovered(self, policy: str) -> Estimate | None:
        """How much of the way from ThunderAgent (the better of its two) to the floor, in mean latency, by seed."""
        references = [name for name in REFERENCES if name in self.runs]
        if not references:
            return None
        shares: list[float] = []
        for seed, (run, floor) in enumerate(zip(self.runs[policy], self.floors, strict=True)):
            means = [self.runs[name][seed].summary.latency_seconds.mean for name in references]
            known = [mean for mean in means if mean is not None]
            share = recovered_share(
                run.summary.latency_seconds.mean, min(known, default=None), floor.summary.latency_seconds.mean
            )
            if share is not None:
                shares.append(share)
        return estimate(shares)

    def best(self, metric: Metric, policies: Iterable[str]) -> str | None:
        """The policy with the best mean, the first of equals."""
        known = [(policy, self.figure(policy, metric)) for policy in policies]
        means = [(policy, figure.mean) for policy, figure in known if figure is not None]
        if not means:
            return None
        pick = min if metric.less_is_better else max
        return pick(means, key=lambda pair: pair[1])[0]

    def cell(self, policy: str, metric: Metric) -> Cell | None:
        """The policy against the best of the others' baselines."""
        opponent = self.best(
            metric, [name for name in self.baselines if name != policy and name in self.runs]
        )
        if opponent is None:
            return None
        ours, theirs = self.values(policy, metric), self.values(opponent, metric)
        if not ours or not theirs:
            return None
        comparison = compare(ours, theirs, less_is_better=metric.less_is_better)
        return None if comparison is None else Cell(metric, policy, opponent, comparison)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A suite that has been run. `stand_ins`: traces that were not there, and what stood in for them."""

    suite: PolicySuite
    points: list[PointResult]
    stand_ins: dict[str, str]

    def cells(self, policy: str) -> list[Cell]:
        """All cells of a policy that could be compared."""
        found = [
            point.cell(policy, metric) for point in self.points for metric in CELLS if policy in point.runs
        ]
        return [cell for cell in found if cell is not None]

    def score(self, policy: str) -> dict[Verdict, int]:
        """How many cells the policy wins, ties and loses."""
        verdicts = [cell.comparison.verdict for cell in self.cells(policy)]
        return {verdict: verdicts.count(verdict) for verdict in Verdict}

    @property
    def policies(self) -> list[str]:
        """All policies that ran, in the order of the suite."""
        return list(dict.fromkeys(policy for point in self.points for policy in point.runs))

    @property
    def violations(self) -> list[str]:
        """What the checkers found in any run."""
        return [
            f"{_told(point.point)}, {run.spec.policy}, seed {run.spec.seed}: {text}"
            for point in self.points
            for runs in (*point.runs.values(), point.floors)
            for run in runs
            for text in run.violations
        ]


def _told(point: Point) -> str:
    variant = f", {point.variant.name}" if len(point.setting.variants) > 1 else ""
    return f"{point.setting.name}{variant}, {point.replicas} replicas, {point.concurrency} workers"


def evaluation_of(
    suite: PolicySuite, cases: Sequence[Case], results: Sequence[RunResult], stand_ins: dict[str, str]
) -> Evaluation:
    """Group results, in the order of their cases, by point."""
    points: dict[Point, PointResult] = {}
    for case, result in zip(cases, results, strict=True):
        point = points.setdefault(case.point, PointResult(case.point, {}, [], suite.baselines))
        if case.is_floor:
            point.floors.append(result)
        else:
            point.runs.setdefault(case.policy, []).append(result)
    return Evaluation(suite, list(points.values()), stand_ins)
