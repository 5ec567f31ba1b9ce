"""The tables of docs/results/suites.md, from the figures that `tao evaluate` wrote beside its reports.

usage: python benchmarks/suite_tables.py SUITE.json...
Prints Markdown for each suite: what every policy wins, ties and loses against the best of the suite's baselines other than
itself, then for each setting mean session latency in seconds with its 95 % interval, the best of a column in bold, and `tao`
against the best baseline of each column.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao.report.statistics import Comparison, Verdict, compare, estimate
from tao.report.suite import PolicySuite, load_suite

Row = Mapping[str, Any]
Runs = Mapping[str, Sequence[Row]]
"""The runs of one point by policy, in the order of seeds."""

OURS = "tao"
FLOOR = "no memory limit (the floor)"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that wins and losses are counted by."""

    title: str
    value: Callable[[Row], float | None]
    less_is_better: bool = True


METRICS = (
    Metric("latency", lambda run: run["latency_seconds"]["mean"]),
    Metric("TTFT", lambda run: run["ttft_seconds"]["mean"]),
    Metric(
        "decode",
        lambda run: run["decode_tokens_per_second"] or run["decode_tokens_per_second_overall"],
        less_is_better=False,
    ),
)
LATENCY = METRICS[0]


@dataclass(frozen=True, slots=True)
class Column:
    """One point of a setting."""

    x: str
    runs: Runs
    floors: Sequence[Row]

    def values(self, policy: str, metric: Metric) -> list[float]:
        """One a seed; none where a seed has none."""
        values = [metric.value(run) for run in self.runs.get(policy, ())]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    def best(self, metric: Metric, policies: Sequence[str]) -> str | None:
        """Who has the best mean."""
        means = {p: estimate(self.values(p, metric)) for p in policies}
        known = {p: figure.mean for p, figure in means.items() if figure is not None}
        pick = min if metric.less_is_better else max
        return pick(known, key=lambda p: known[p], default=None)

    def against(self, policy: str, metric: Metric, baselines: Sequence[str]) -> tuple[str, Comparison] | None:
        """The policy and the best other baseline, paired by seed."""
        opponent = self.best(metric, [name for name in baselines if name != policy])
        if opponent is None:
            return None
        ours, theirs = self.values(policy, metric), self.values(opponent, metric)
        compared = (
            compare(ours, theirs, less_is_better=metric.less_is_better)
            if ours and len(ours) == len(theirs)
            else None
        )
        return None if compared is None else (opponent, compared)


def settings_of(rows: Sequence[Row]) -> dict[str, list[Column]]:
    """The points of each setting, in the order of the file."""
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row["setting"], row["x"]), []).append(row)
    settings: dict[str, list[Column]] = {}
    for (setting, x), of_point in grouped.items():
        runs: dict[str, list[Row]] = {}
        for row in of_point:
            if not row["is_floor"]:
                runs.setdefault(row["policy"], []).append(row)
        settings.setdefault(setting, []).append(Column(x, runs, [row for row in of_point if row["is_floor"]]))
    return settings


def shown(values: Sequence[float], *, bold: bool = False) -> str:
    """Seconds with their interval."""
    figure = estimate(values)
    if figure is None:
        return "-"
    digits = 0 if figure.mean >= 100 else 1
    mean = f"{figure.mean:,.{digits}f}"
    width = "" if figure.half_width is None else f" ± {figure.half_width:,.{digits}f}"
    return f"**{mean}**{width}" if bold else mean + width


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def head(cells: Sequence[str]) -> Iterator[str]:
    yield line(cells)
    yield "|" + "---|" * len(cells)


def score_table(
    columns: Sequence[Column], policies: Sequence[str], baselines: Sequence[str]
) -> Iterator[str]:
    """Wins, ties and losses of every policy."""
    yield from head(["policy", *(f"{m.title}: won / tied / lost" for m in METRICS), "all"])
    for policy in policies:
        by_metric = []
        for metric in METRICS:
            found = [column.against(policy, metric, baselines) for column in columns]
            verdicts = [pair[1].verdict for pair in found if pair is not None]
            by_metric.append([verdicts.count(verdict) for verdict in Verdict])
        total = [sum(counts) for counts in zip(*by_metric, strict=True)]
        cells = [" / ".join(map(str, counts)) for counts in (*by_metric, total)]
        yield line([f"`{policy}`", *cells])


def latency_table(columns: Sequence[Column], policies: Sequence[str], axis: str) -> Iterator[str]:
    """Mean session latency of every policy at every point."""
    yield from head([axis, *(column.x for column in columns)])
    best = [column.best(LATENCY, policies) for column in columns]
    for policy in policies:
        cells = [
            shown(column.values(policy, LATENCY), bold=winner == policy)
            for column, winner in zip(columns, best, strict=True)
        ]
        yield line([f"`{policy}`", *cells])
    floors = [[v for run in column.floors if (v := LATENCY.value(run)) is not None] for column in columns]
    if any(floors):
        yield line([FLOOR, *map(shown, floors)])


def own_lines(columns: Sequence[Column], baselines: Sequence[str]) -> Iterator[str]:
    """`tao` against the best baseline, by metric."""
    for metric in METRICS:
        cells = []
        for column in columns:
            pair = column.against(OURS, metric, baselines)
            if pair is None:
                cells.append("-")
                continue
            opponent, compared = pair
            figure = compared.difference
            width = "" if figure.half_width is None else f" ± {100 * figure.half_width:.1f}"
            cells.append(f"{100 * figure.mean:+.1f}{width} % {compared.verdict.value} (`{opponent}`)")
        yield line([f"*`{OURS}`, {metric.title}*", *cells])


def pages(path: Path) -> Iterator[str]:
    """Markdown lines of one suite."""
    told = json.loads(path.read_text())
    suite = load_suite(told["suite"])
    if not isinstance(suite, PolicySuite):
        sys.exit(f"{path}: {suite.name} compares solvers, not policies")
    settings = settings_of(told["runs"])
    every = [column for columns in settings.values() for column in columns]
    policies = list(dict.fromkeys(policy for column in every for policy in column.runs))
    turns = sum(row["turns"] for row in told["runs"])
    yield f"## `{suite.name}`: {suite.title}"
    yield ""
    yield f"{len(told['runs'])} runs of {turns:,} turns, {told['seeds']} seeds."
    yield ""
    yield from score_table(every, policies, suite.baselines)
    for setting, columns in settings.items():
        yield ""
        yield f"**{setting}**"
        yield ""
        present = [policy for policy in policies if any(policy in column.runs for column in columns)]
        yield from latency_table(columns, present, suite.sweeps)
        if OURS in present:
            yield from own_lines(columns, [name for name in suite.baselines if name in present])
    yield ""


def main() -> None:
    """Print the tables of the files named."""
    if len(sys.argv) < 2:
        sys.exit((__doc__ or "").strip())
    for name in sys.argv[1:]:
        print("\n".join(pages(Path(name))))


if __name__ == "__main__":
    main()
