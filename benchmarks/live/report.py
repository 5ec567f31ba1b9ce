"""The figures of the runs on real engines: a row for each peer, comparisons in pairs, one table and one plot.

A median over the repeats comes with its interval; a comparison is paired by repeat, since the runs of one repeat share
their sessions and their order. Rows in, text out: it must not know how a run is made.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.live.figures import Median, median
from tao.report.statistics import Comparison, compare

Row = Mapping[str, Any]
OURS = "tao"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run."""

    key: str
    title: str
    read: Callable[[Row], float | None]
    less_is_better: bool = True
    form: str = ".2f"


METRICS = (
    Metric(
        "latency_mean",
        "session latency, mean, s",
        lambda r: r["replay"]["latency_seconds"]["mean"],
        form=".1f",
    ),
    Metric(
        "latency_p50", "session latency, p50, s", lambda r: r["replay"]["latency_seconds"]["p50"], form=".1f"
    ),
    Metric("ttft_mean", "TTFT, mean, s", lambda r: r["replay"]["ttft_seconds"]["mean"]),
    Metric("ttft_p50", "TTFT, p50, s", lambda r: r["replay"]["ttft_seconds"]["p50"]),
    Metric("hit_rate", "hit rate", lambda r: r["engine_hit_rate"], less_is_better=False, form=".1%"),
    Metric("makespan", "makespan, s", lambda r: r["replay"]["makespan_seconds"], form=".0f"),
)
COMPARED = ("latency_mean", "latency_p50", "ttft_mean", "hit_rate")


def names(rows: Sequence[Row]) -> list[str]:
    """The peers, in the order they first ran."""
    return list(dict.fromkeys(row["peer"] for row in rows))


def values(rows: Sequence[Row], peer: str, metric: Metric) -> dict[int, float]:
    """A peer's figure by repeat; runs that failed have none."""
    read = {row["repeat"]: metric.read(row) for row in rows if row["peer"] == peer and "error" not in row}
    return {repeat: value for repeat, value in sorted(read.items()) if value is not None}


def medians(rows: Sequence[Row]) -> dict[str, dict[str, Median]]:
    """By peer and metric."""
    return {
        peer: {
            metric.key: median(list(found.values()))
            for metric in METRICS
            if (found := values(rows, peer, metric))
        }
        for peer in names(rows)
    }


def comparisons(rows: Sequence[Row]) -> dict[str, dict[str, Comparison]]:
    """How we stand against each peer, by metric; over the repeats in which both ran."""
    found: dict[str, dict[str, Comparison]] = {}
    for peer in (peer for peer in names(rows) if peer != OURS):
        for metric in (metric for metric in METRICS if metric.key in COMPARED):
            ours, theirs = values(rows, OURS, metric), values(rows, peer, metric)
            both = sorted(ours.keys() & theirs.keys())
            compared = compare(
                [ours[repeat] for repeat in both],
                [theirs[repeat] for repeat in both],
                less_is_better=metric.less_is_better,
            )
            if compared is not None:
                found.setdefault(peer, {})[metric.key] = compared
    return found


def table(rows: Sequence[Row]) -> str:
    """Markdown: medians with their intervals, then our comparisons."""
    lines = [_line("through", *(metric.title for metric in METRICS)), "|---" * (len(METRICS) + 1) + "|"]
    for peer, one in medians(rows).items():
        failed = sum("error" in row for row in rows if row["peer"] == peer)
        name = f"{peer} ({failed} runs failed)" if failed else peer
        cells = (f"{one[m.key]:{m.form}}" if m.key in one else "-" for m in METRICS)
        lines.append(_line(name, *cells))
    compared = comparisons(rows)
    if compared:
        titles = [metric.title for metric in METRICS if metric.key in COMPARED]
        lines += ["", _line("`tao` against", *titles), "|---" * (len(titles) + 1) + "|"]
        for peer, by_metric in compared.items():
            lines.append(_line(peer, *(_versus(by_metric.get(key)) for key in COMPARED)))
    return "\n".join(lines) + "\n"


def row_text(row: Row) -> str:
    """One run in a line, for whoever waits."""
    start = f"repeat {row['repeat'] + 1}, {row['peer']}: "
    if "error" in row:
        return f"{start}FAILED: {row['error']}"
    read = ((metric, metric.read(row)) for metric in METRICS)
    return start + ", ".join(
        f"{metric.title} {value:{metric.form}}" for metric, value in read if value is not None
    )


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _versus(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    by = comparison.difference
    spread = "" if by.half_width is None else f" ± {by.half_width:.0%}"
    return f"{by.mean:+.0%}{spread}, {comparison.verdict}"


# --- the plot -------------------------------------------------------------------------------------

PANELS = ("latency_mean", "ttft_mean", "hit_rate")
LABEL_WIDTH, PANEL_WIDTH, ROW_HEIGHT, HEAD_HEIGHT = 210, 230, 26, 34
OUR_COLOUR, THEIR_COLOUR = "#d55e00", "#0072b2"


def plot(rows: Sequence[Row]) -> str:
    """SVG: a panel for each of three metrics, a line for each peer with every run, its median and the interval."""
    by_peer = medians(rows)
    width = LABEL_WIDTH + PANEL_WIDTH * len(PANELS) + 20
    height = HEAD_HEIGHT + ROW_HEIGHT * len(by_peer) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" role="img"><rect width="{width}" height="{height}" fill="white"/>'
    ]
    for number, peer in enumerate(by_peer):
        y = HEAD_HEIGHT + ROW_HEIGHT * (number + 0.5)
        parts.append(f'<text x="8" y="{y + 4:.0f}">{html.escape(peer)}</text>')
    for number, key in enumerate(PANELS):
        metric = next(metric for metric in METRICS if metric.key == key)
        parts += _panel(rows, metric, by_peer, LABEL_WIDTH + PANEL_WIDTH * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    rows: Sequence[Row], metric: Metric, by_peer: dict[str, dict[str, Median]], left: float
) -> list[str]:
    top = max((max(values(rows, peer, metric).values(), default=0.0) for peer in by_peer), default=0.0)
    scale = (PANEL_WIDTH - 50) / (1.0 if metric.key == "hit_rate" else top or 1.0)
    bottom = HEAD_HEIGHT + ROW_HEIGHT * len(by_peer)
    parts = [
        f'<text x="{left:.0f}" y="18" font-weight="bold">{html.escape(metric.title)}</text>',
        f'<line x1="{left:.0f}" y1="{HEAD_HEIGHT - 6}" x2="{left:.0f}" y2="{bottom}" stroke="#888"/>',
    ]
    for number, (peer, one) in enumerate(by_peer.items()):
        if metric.key not in one:
            continue
        y = HEAD_HEIGHT + ROW_HEIGHT * (number + 0.5)
        colour = OUR_COLOUR if peer == OURS else THEIR_COLOUR
        middle = one[metric.key]
        low, at, high = (left + scale * x for x in (middle.low, middle.value, middle.high))
        parts.append(
            f'<line x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>'
        )
        parts += [
            f'<circle cx="{left + scale * x:.1f}" cy="{y:.1f}" r="2" fill="{colour}" opacity="0.4"/>'
            for x in values(rows, peer, metric).values()
        ]
        parts.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(
            f'<text x="{high + 7:.1f}" y="{y + 4:.1f}" font-size="11">{middle.value:{metric.form}}</text>'
        )
    return parts
