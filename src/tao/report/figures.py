"""The interactive plots of an evaluation report, made with plotly. Shows figures; computes none.

plotly is an optional extra and slow to import: only this file imports it, and only when a figure is made.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tao.report.evaluation import METRICS, Metric, PointResult
from tao.report.statistics import Estimate

if TYPE_CHECKING:
    from plotly.graph_objects import Figure  # type: ignore[import-untyped]

# Distinct in hue and lightness, also for the colour-blind (Okabe and Ito, with darker companions).
COLOURS = (
    "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#8c6d31", "#444444", "#a6761d", "#1b9e77",
    "#e7298a",
)  # fmt: skip
OUR_COLOUR = "#d55e00"
"""Of `tao`, in every report: who looks through several finds it at once."""
FLOOR_COLOUR = "#999999"
FLOOR = "unlimited memory"
PLOTTED = tuple(m for m in METRICS if m.key in {"latency", "ttft", "decode", "hit", "tool_end", "hold"})
LOGARITHMIC = frozenset({"ttft", "tool_end"})
TICKS = tuple(first * 10.0**power for power in range(-4, 6) for first in (1, 2, 5))
"""Of a logarithmic axis: by itself the library writes the first digit alone between powers of ten."""

COLUMNS = 3
PANEL_HEIGHT = 320
SEEDS_DRAWN = 3
"""With fewer seeds an interval is wider than the plot and says nothing."""


class PlotsMissingError(RuntimeError):
    """The plotting library is not installed."""

    def __init__(self) -> None:
        super().__init__("the report's plots need plotly: pip install plotly")


def require_plots() -> None:
    """Raise PlotsMissingError where the library is not there: to be asked before hours of runs."""
    if find_spec("plotly") is None:
        raise PlotsMissingError


def library() -> str:
    """The JavaScript that the plots need, about 5 MB, to be put into the page."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    return str(get_plotlyjs())


def colours_of(policies: Sequence[str]) -> dict[str, str]:
    """A colour for each policy, the same in all plots of a report; that of `tao` is the same in all reports."""
    others = [policy for policy in policies if policy != "tao"]
    colours = {policy: COLOURS[n % len(COLOURS)] for n, policy in enumerate(others)}
    return {policy: colours.get(policy, OUR_COLOUR) for policy in policies}


def setting_plot(points: Sequence[PointResult], axis: str, colours: dict[str, str], name: str) -> str:
    """The plots of one setting as one piece of HTML: a panel for each metric worth a picture, one legend for all.

    A click on a policy in the legend hides it in every panel.
    """
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    titles = [metric.title + (f" ({metric.unit})" if metric.unit else "") for metric in PLOTTED]
    rows = -(-len(PLOTTED) // COLUMNS)
    figure = make_subplots(
        rows, COLUMNS, subplot_titles=titles, vertical_spacing=0.16, horizontal_spacing=0.06
    )
    as_bars = axis == "variants" or len(points) == 1
    for number, metric in enumerate(PLOTTED):
        place = {"row": number // COLUMNS + 1, "col": number % COLUMNS + 1}
        _draw(figure, place, points, metric, colours, as_bars=as_bars)
        log = metric.key in LOGARITHMIC and not as_bars  # a bar has to begin at zero
        vertical = (
            {"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}" for tick in TICKS]}
            if log
            else {"rangemode": "tozero"}
        )
        figure.update_yaxes(**vertical, **place)
    figure.update_xaxes(type="category")
    if axis != "variants":
        figure.update_xaxes(title_text=axis, row=rows)
    figure.update_annotations(font_size=13)
    figure.update_layout(
        template="plotly_white",
        height=PANEL_HEIGHT * rows,
        margin={"l": 50, "r": 10, "t": 30, "b": 30},
        hovermode="closest" if as_bars else "x",
        barmode="group",
    )
    config = {"displayModeBar": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


def _draw(
    figure: "Figure",
    place: dict[str, int],
    points: Sequence[PointResult],
    metric: Metric,
    colours: dict[str, str],
    *,
    as_bars: bool,
) -> None:
    shown = place == {"row": 1, "col": 1}
    for policy, colour in colours.items():
        of_policy = [(point, point.figure(policy, metric)) for point in points if policy in point.runs]
        known = [(point, value) for point, value in of_policy if value is not None]
        if not known:
            continue
        series = {**_series(known), "name": policy, "legendgroup": policy, "showlegend": shown, **place}
        if as_bars:
            figure.add_bar(**series, marker={"color": colour})
        else:
            width = 3 if policy.startswith("tao") else 1.5
            figure.add_scatter(**series, mode="lines+markers", line={"color": colour, "width": width})
    floors = [(point, value) for point in points if (value := point.floor(metric)) is not None]
    if floors and metric.key != "hold":
        series = {**_series(floors), "name": FLOOR, "legendgroup": FLOOR, "showlegend": shown, **place}
        if as_bars:
            figure.add_bar(**series, marker={"color": FLOOR_COLOUR})
        else:
            figure.add_scatter(**series, mode="lines", line={"color": FLOOR_COLOUR, "dash": "dot"})


def _series(values: Sequence[tuple[PointResult, Estimate]]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "x": [point.point.x for point, _ in values],
        "y": [value.mean for _, value in values],
    }
    if all(value.count >= SEEDS_DRAWN for _, value in values):
        drawn["error_y"] = {"array": [value.half_width for _, value in values], "thickness": 1, "width": 3}
    return drawn
