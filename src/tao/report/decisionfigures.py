"""The plots of a comparison of solvers, made with plotly: who is behind, by how much, and in what time.

Shows figures; computes none but the steps of a distribution. plotly is imported when a figure is made.
"""

from collections.abc import Sequence

from tao.report.decisions import COORDINATES, Decision, Tally
from tao.report.figures import colours_of

EQUAL = "as good"
COLOURS = {
    EQUAL: "#e5e7eb",
    "aged": "#2e1065",
    "credit": "#6d28d9",
    "readiness": "#a78bfa",
    "footprint": "#ddd6fe",
}
HEIGHT = 340


def comparison_plot(
    tallies: dict[str, Tally], decisions: Sequence[Decision], solvers: Sequence[str], name: str
) -> str:
    """Three panels as one piece of HTML: outcomes, how much is lacking, and processor time by candidates.

    `tallies`: by solver, over the decisions with several candidates. `decisions`: those whose time is drawn.
    """
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    titles = ("Behind the reference, % of decisions", "What is lacking where behind", "Processor time, ms")
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.07)
    for outcome, shares in _outcomes(tallies).items():
        figure.add_bar(
            x=list(tallies),
            y=shares,
            name=outcome if outcome == EQUAL else f"behind in {outcome}",
            marker={"color": COLOURS[outcome]},
            hovertemplate="%{x}: %{y:.1f} %",
            row=1,
            col=1,
        )
    colours = colours_of(solvers)
    for solver in solvers:
        line = {"name": solver, "legendgroup": solver, "line": {"color": colours[solver]}}
        if solver in tallies and tallies[solver].shorts:
            x, y = _steps(tallies[solver].shorts)
            figure.add_scatter(
                x=x, y=y, mode="lines", **line, line_shape="hv", showlegend=False, row=1, col=2
            )
        sizes, milliseconds = _times(decisions, solver)
        figure.add_scatter(x=sizes, y=milliseconds, mode="lines", **line, row=1, col=3)
    figure.update_layout(
        template="plotly_white",
        height=HEIGHT,
        barmode="stack",
        margin={"l": 50, "r": 10, "t": 30, "b": 40},
        hovermode="closest",
    )
    figure.update_annotations(font_size=13)
    figure.update_yaxes(range=[0, 100], row=1, col=1)
    figure.update_yaxes(title_text="% of those behind", rangemode="tozero", row=1, col=2)
    figure.update_xaxes(title_text="lacking at most, %", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(type="log", dtick=1, row=1, col=3)
    figure.update_xaxes(title_text="candidates (median of each number)", row=1, col=3)
    config = {"displayModeBar": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


def _outcomes(tallies: dict[str, Tally]) -> dict[str, list[float]]:
    """Shares in per cent, by outcome and then by solver."""
    shares: dict[str, list[float]] = {}
    for outcome in (*COORDINATES, EQUAL):
        counts = [
            tally.behind[outcome] if outcome != EQUAL else tally.equal + tally.ahead
            for tally in tallies.values()
        ]
        totals = [max(tally.decisions, 1) for tally in tallies.values()]
        if outcome == EQUAL or any(counts):
            shares[outcome] = [100.0 * n / total for n, total in zip(counts, totals, strict=True)]
    return shares


def _steps(shorts: Sequence[float]) -> tuple[list[float], list[float]]:
    """The distribution function of sorted values, both axes in per cent."""
    count = len(shorts)
    return [0.0, *(100.0 * s for s in shorts)], [0.0, *(100.0 * (n + 1) / count for n in range(count))]


def _times(decisions: Sequence[Decision], solver: str) -> tuple[list[int], list[float]]:
    """Median milliseconds for each number of candidates."""
    by_size: dict[int, list[float]] = {}
    for decision in decisions:
        by_size.setdefault(decision.candidates, []).append(decision.solved[solver].cpu_seconds)
    sizes = sorted(by_size)
    return sizes, [1e3 * sorted(by_size[size])[len(by_size[size]) // 2] for size in sizes]
