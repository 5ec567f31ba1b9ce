"""A comparison of solvers as a self-contained HTML page and as rows of JSON.

Everything shown comes from `tao.report.decisions`; here it is only put into words and cells.
"""

from collections.abc import Sequence
from html import escape

from tao import __version__
from tao.planning import answer_fields
from tao.report.decisionfigures import comparison_plot
from tao.report.decisions import COORDINATES, Decision, DecisionGroup, JointEvaluation, Tally, quantile, tally
from tao.report.figures import library
from tao.report.markup import document, notes, prose, table

EXPLAINED = """
<p>A <b>candidate</b> is a waiting session that fits on a replica alone; a decision has something to weigh only where there
are <b>several candidates</b>, and is <b>contested</b> where they do not all find room. Answers are compared coordinate by
coordinate: sessions that waited too long (oldest first), then credit, then readiness, then footprint. A solver is
<b>behind</b> in the first coordinate in which it keeps less than <b>{reference}</b>; what it lacks there is given as a share
of what {reference} keeps.</p>
"""


def joint_page(evaluation: JointEvaluation, command: str, date: str) -> str:
    """The whole page. `command`: the one that makes it again; `date`: when it was made."""
    suite, together = evaluation.suite, evaluation.together
    parts = [
        f"<h1>{escape(suite.title)}</h1>",
        prose(suite.description),
        f'<p class="made">Suite <b>{escape(suite.name)}</b>, {len(together.decisions):,} decisions, '
        f"{len(suite.solvers)} solvers, tao {escape(__version__)}, {escape(date)}. All but the times repeats exactly "
        f"by seed. Made by</p><pre>{escape(command)}</pre>",
        notes(evaluation.stand_ins, evaluation.violations),
        EXPLAINED.format(reference=escape(suite.reference)),
    ]
    groups = evaluation.groups if len(evaluation.groups) == 1 else (together, *evaluation.groups)
    for number, group in enumerate(groups):
        parts += _group(evaluation, group, f"plot-{number}")
    return document(suite.title, parts, library())


def joint_rows(evaluation: JointEvaluation) -> list[dict[str, object]]:
    """One row for each decision: what it is, and every solver's answer without its assignment."""
    return [
        {
            "group": group.title,
            "snapshot": decision.name,
            "sessions": decision.sessions,
            "replicas": decision.replicas,
            "candidates": decision.candidates,
            "contested": decision.is_contested(evaluation.suite.reference),
            "solvers": {solver: _row(evaluation, decision, solver) for solver in decision.solved},
        }
        for group in evaluation.groups
        for decision in group.decisions
    ]


def _row(evaluation: JointEvaluation, decision: Decision, solver: str) -> dict[str, object]:
    solved = decision.solved[solver]
    difference = decision.behind(solver, evaluation.suite.reference)
    fields = answer_fields(solved.answer)
    ageing = solved.answer.ageing
    return {
        "status": fields["status"],
        "solver": fields["solver"],
        "objective": fields["objective"],
        "bound": fields["bound"],
        "placed": len(solved.answer.assignment),
        "aged": 0 if ageing is None else len(ageing.aged),
        "aged_placed": 0 if ageing is None else len(ageing.placed),
        "moves": solved.answer.moves,
        "behind_in": None if difference is None else difference.coordinate,
        "short": None if difference is None else difference.short,
        "cpu_seconds": solved.cpu_seconds,
    }


def _group(evaluation: JointEvaluation, group: DecisionGroup, plot: str) -> list[str]:
    suite = evaluation.suite
    several, contested = group.several(), group.contested(suite.reference)
    title = "All decisions" if group.title == "all" else group.title
    parts = [
        f"<h2>{escape(title)}</h2>",
        f"<p>{len(group.decisions):,} decisions, {len(several):,} with several candidates, {len(contested):,} of them "
        "contested.</p>",
    ]
    if not several:
        return [*parts, "<p>Nothing was to be decided jointly: the load is below the knee.</p>"]
    others = [solver for solver in suite.solvers if solver != suite.reference]
    of_several = {solver: tally(several, solver, suite.reference) for solver in others}
    return [
        *parts,
        f'<div class="plot">{comparison_plot(of_several, group.decisions, suite.solvers, plot)}</div>',
        f"<h3>Kept less than {escape(suite.reference)}</h3>",
        _outcome_table(group.decisions, of_several, contested, suite.reference),
        "<h3>Time and proof</h3>",
        _time_table(group.decisions, several, suite.solvers),
    ]


def _outcome_table(
    decisions: Sequence[Decision], of_several: dict[str, Tally], contested: Sequence[Decision], reference: str
) -> str:
    heads = ["solver", "of all", "of those with several candidates", "of contested ones"]
    heads += [f"behind in {name}" for name in COORDINATES]
    heads += ["as good", "ahead", "lacking, median", "p90", "largest"]
    rows = []
    for solver, several in of_several.items():
        counts = [several.behind[name] for name in COORDINATES]
        shorts = [_percent(quantile(several.shorts, share)) for share in (0.5, 0.9, 1.0)]
        rows.append(
            [
                escape(solver),
                _share(tally(decisions, solver, reference)),
                _share(several),
                _share(tally(contested, solver, reference)),
                *map(str, counts),
                str(several.equal),
                str(several.ahead),
                *shorts,
            ]
        )
    return table(heads, rows)


def _time_table(decisions: Sequence[Decision], several: Sequence[Decision], solvers: Sequence[str]) -> str:
    heads = [
        "solver",
        "all: median, ms",
        "p99",
        "largest",
        "several candidates: median, ms",
        "p99",
        "proved",
        "fallbacks",
    ]
    rows = []
    for solver in solvers:
        statuses = [decision.solved[solver].answer.status for decision in decisions]
        times = [_milliseconds(decisions, solver, share) for share in (0.5, 0.99, 1.0)]
        times += [_milliseconds(several, solver, share) for share in (0.5, 0.99)]
        proved = _percent(statuses.count("optimal") / len(statuses))
        rows.append([escape(solver), *times, proved, str(statuses.count("fallback"))])
    return table(heads, rows)


def _milliseconds(decisions: Sequence[Decision], solver: str, share: float) -> str:
    value = quantile(sorted(decision.solved[solver].cpu_seconds for decision in decisions), share)
    return "-" if value is None else f"{1e3 * value:,.1f}"


def _share(of: Tally) -> str:
    return (
        "-"
        if of.worse_share is None
        else f"<b>{100 * of.worse_share:.1f} %</b> <small>({of.worse} of {of.decisions})</small>"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
