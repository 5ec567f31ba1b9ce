"""An evaluation as one self-contained HTML page: tables, plots, and how it was made. Needs no network to be read.

Everything shown comes from `tao.report.evaluation`; here it is only put into words and cells.
"""

from collections.abc import Iterable, Sequence
from html import escape

from tao import __version__
from tao.report import figures
from tao.report.evaluation import CELLS, METRICS, Cell, Evaluation, Metric, PointResult
from tao.report.markup import document, notes, prose, table
from tao.report.statistics import Estimate, Verdict
from tao.report.suite import Setting

TABLED = tuple(metric for metric in METRICS if metric.key not in ("planning", "failed"))


def page(evaluation: Evaluation, command: str, date: str) -> str:
    """The whole page. `command`: the one that makes it again; `date`: when it was made."""
    suite = evaluation.suite
    colours = figures.colours_of(evaluation.policies)
    parts = [
        f"<h1>{escape(suite.title)}</h1>",
        prose(suite.description),
        _how_made(evaluation, command, date),
        notes(evaluation.stand_ins, evaluation.violations),
        "<h2>Wins, ties and losses</h2>",
        _scores(evaluation),
        "<p>A cell is one metric at one point: mean session latency, mean time to first token, decode throughput. In each "
        "cell a policy is compared with the best of the baselines other than itself, paired by seed; a win or a loss "
        "needs a 95 % confidence interval of the difference that leaves out zero.</p>",
    ]
    for number, (title, points) in enumerate(sections(evaluation.points, suite.sweeps)):
        parts += _section(title, points, suite.sweeps, colours, f"plot-{number}")
    return document(suite.title, parts, figures.library())


def _how_made(evaluation: Evaluation, command: str, date: str) -> str:
    suite = evaluation.suite
    runs = sum(len(r) for point in evaluation.points for r in (*point.runs.values(), point.floors))
    turns = sum(
        run.summary.turns
        for point in evaluation.points
        for of_one in (*point.runs.values(), point.floors)
        for run in of_one
    )
    return (
        f'<p class="made">Suite <b>{escape(suite.name)}</b>, {runs} simulated runs of {turns:,} turns, {suite.seeds} seeds '
        f"each, tao {escape(__version__)}, {escape(date)}. Figures repeat exactly by seed on any machine. Made by</p>"
        f"<pre>{escape(command)}</pre>"
    )


def _scores(evaluation: Evaluation) -> str:
    rows = []
    for policy in evaluation.policies:
        score = evaluation.score(policy)
        total = sum(score.values())
        if not total:
            continue
        by_metric = [
            " / ".join(str(_count(evaluation.cells(policy), metric, verdict)) for verdict in Verdict)
            for metric in CELLS
        ]
        rows.append([_name(evaluation, policy), *(str(score[v]) for v in Verdict), str(total), *by_metric])
    heads = ["policy", "wins", "ties", "losses", "cells", *(f"{metric.title}: w / t / l" for metric in CELLS)]
    return table(heads, rows)


def _count(cells: Sequence[Cell], metric: Metric, verdict: Verdict) -> int:
    return sum(cell.metric is metric and cell.comparison.verdict is verdict for cell in cells)


def _name(evaluation: Evaluation, policy: str) -> str:
    mark = " (baseline)" if policy in evaluation.suite.baselines else ""
    return escape(policy) + mark


def sections(points: Iterable[PointResult], axis: str) -> list[tuple[str, list[PointResult]]]:
    """The points that are shown together, by title: those of one setting that differ in nothing but what the axis shows."""
    found: dict[Setting, dict[str, list[PointResult]]] = {}
    for one in points:
        point = one.point
        load = f"{point.replicas} replicas, {point.concurrency} workers"
        apart = load if axis == "variants" else point.variant.name
        found.setdefault(point.setting, {}).setdefault(apart, []).append(one)
    return [
        (setting.name if len(parts) == 1 else f"{setting.name}: {apart}", together)
        for setting, parts in found.items()
        for apart, together in parts.items()
    ]


def _section(
    title: str, points: Sequence[PointResult], axis: str, colours: dict[str, str], name: str
) -> list[str]:
    setting = points[0].point.setting
    traces = ", ".join(setting.traces)
    stands_for = f" In the place of: {setting.stands_for}." if setting.stands_for else ""
    run = next(iter(points[0].runs.values()))[0]
    counts = ", ".join(map(str, sorted({point.point.replicas for point in points})))
    text = (
        f"Profile {run.spec.profile.name}, replicas: {counts}, {points[0].point.sessions} sessions of {traces}; KV cache of "
        f"one replica: {run.spec.replica_kv_tokens:,} tokens; bound on waiting {setting.hold_seconds_max:g} s.{stands_for}"
    )
    return [
        f"<h2>{escape(title)}</h2>",
        f"<p>{escape(text)}</p>",
        f'<div class="plot">{figures.setting_plot(points, axis, colours, name)}</div>',
        "<h3>Figures</h3>",
        _figures_table(points, axis),
        "<h3>Against the best baseline</h3>",
        _comparison_table(points, axis),
    ]


def _figures_table(points: Sequence[PointResult], axis: str) -> str:
    heads = [
        axis,
        "policy",
        *(metric.title + (f", {metric.unit}" if metric.unit else "") for metric in TABLED),
    ]
    heads.append("way to the floor")
    rows = []
    for point in points:
        best = {metric.key: point.best(metric, point.runs) for metric in CELLS}
        for policy in point.runs:
            cells = [
                _figure(point.figure(policy, metric), metric, is_best=best.get(metric.key) == policy)
                for metric in TABLED
            ]
            rows.append([escape(point.point.x), escape(policy), *cells, _share(point.recovered(policy))])
        floor = [_figure(point.floor(metric), metric, is_best=False) for metric in TABLED]
        rows.append([escape(point.point.x), "<i>unlimited memory</i>", *floor, ""])
    return table(heads, rows, text_columns=2)


def _comparison_table(points: Sequence[PointResult], axis: str) -> str:
    heads = [axis, "policy", *(metric.title for metric in CELLS)]
    rows = []
    for point in points:
        for policy in point.runs:
            cells = [point.cell(policy, metric) for metric in CELLS]
            if any(cell is not None for cell in cells):
                rows.append([escape(point.point.x), escape(policy), *map(_cell, cells)])
    return table(heads, rows, text_columns=2)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    difference = cell.comparison.difference
    width = "" if difference.half_width is None else f" ± {100 * difference.half_width:.1f}"
    verdict = cell.comparison.verdict
    return (
        f'<span class="{verdict.value}">{100 * difference.mean:+.1f}{width} % <b>{verdict.value}</b></span> '
        f"<small>against {escape(cell.opponent)}</small>"
    )


def _figure(value: Estimate | None, metric: Metric, *, is_best: bool) -> str:
    if value is None:
        return "-"
    text = f"{value.mean:,.{metric.digits}f}"
    if is_best:
        text = f"<b>{text}</b>"
    return (
        text if value.half_width is None else f"{text} <small>± {value.half_width:,.{metric.digits}f}</small>"
    )


def _share(value: Estimate | None) -> str:
    if value is None:
        return "-"
    width = "" if value.half_width is None else f" <small>± {100 * value.half_width:.0f}</small>"
    return f"{100 * value.mean:.0f} %{width}"
