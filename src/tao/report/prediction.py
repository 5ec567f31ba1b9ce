"""How good are predictions of tool returns? Recorded calls played causally through predictors, and the figures of it.

A call is predicted when it starts and learned from when it has ended, in the order of the recorded times, so that nothing
is known too early. Waits for a human teach but do not count: nobody plans on them. No I/O.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from tao.core.events import ToolCall
from tao.policies.readiness import ReadyRule
from tao.policies.returns import Absence, Forecast, PointForecast, ReturnPredictor
from tao.report.predictionscore import Score
from tao.traces import TraceSession, TraceTool, TraceTurn

ORACLE = "oracle"
DURATION_SECONDS_MAX = 3600.0
"""Longer calls count as an hour: in recordings they are a laptop asleep or a question that nobody answered."""

DECISION_SECONDS_MAX = 600.0
"""Decisions are judged in the first ten minutes of a call; after that a gateway has given the session up."""


@dataclass(frozen=True, slots=True)
class RecordedAbsence:
    """One phase between two turns: when it began (seconds, comparable within a source), and how long it lasted."""

    absence: Absence
    began_at: float
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class PredictorReport:
    """The figures of one predictor: over all calls, and by tool."""

    predictor: str
    overall: Score
    by_tool: dict[str, Score]


def absences_of(sessions: Iterable[TraceSession]) -> list[RecordedAbsence]:
    """All tool phases and human waits of the sessions. The source of a session is its tenant."""
    found: list[RecordedAbsence] = []
    for session in sessions:
        at = session.start_offset_seconds
        for turn in session.turns:
            at += turn.llm_seconds or 0.0
            seconds = turn.tool_seconds or turn.human_seconds
            absence = Absence(_tools_of(turn), session.source, session.session_id)
            found.append(RecordedAbsence(absence, at, min(seconds, DURATION_SECONDS_MAX)))
            at += turn.tool_seconds + turn.human_seconds
    return found


def train(predictor: ReturnPredictor, recorded: Sequence[RecordedAbsence]) -> None:
    """Teach what was recorded, in the order in which it ended."""
    for one in sorted(recorded, key=lambda r: r.began_at + r.duration_seconds):
        predictor.learn(one.absence, one.duration_seconds)


def evaluate(
    predictor: ReturnPredictor, recorded: Sequence[RecordedAbsence], rule: ReadyRule
) -> PredictorReport:
    """Play the calls through a predictor that goes on learning, and judge every forecast."""
    report = PredictorReport(predictor.name, Score(), {})
    for one, ended in _in_order(recorded):
        if ended:
            predictor.learn(one.absence, one.duration_seconds)
        elif one.absence.tools:
            _judge(report, one, predictor.predict(one.absence), rule)
    return report


def evaluate_oracle(recorded: Sequence[RecordedAbsence], rule: ReadyRule) -> PredictorReport:
    """The figures of one who knows every duration: the best that there can be."""
    report = PredictorReport(ORACLE, Score(), {})
    for one in recorded:
        if one.absence.tools:
            _judge(report, one, PointForecast(one.duration_seconds, ORACLE), rule)
    return report


def _judge(report: PredictorReport, one: RecordedAbsence, forecast: Forecast, rule: ReadyRule) -> None:
    tools = {tool.name for tool in one.absence.tools}
    name = one.absence.tools[0].name if len(tools) == 1 else "(parallel)"
    of_tool = report.by_tool.setdefault(name, Score())
    moments = range(max(1, ceil(min(one.duration_seconds, DECISION_SECONDS_MAX))))
    judged = (report.overall, of_tool)
    for score in judged:
        score.add_call(forecast, one.duration_seconds)
    ready_since: int | None = None
    for elapsed in moments:
        ready = rule.holds(forecast, float(elapsed))
        if ready and ready_since is None:
            ready_since = elapsed
        for score in judged:
            score.add_moment(forecast, float(elapsed), one.duration_seconds, ready, rule.horizon_seconds)
    if ready_since is not None:
        for score in judged:
            score.add_lead(one.duration_seconds - ready_since)


def _tools_of(turn: TraceTurn) -> tuple[ToolCall, ...]:
    if turn.tool is None or turn.tool.is_human:
        return ()
    return tuple(_call(tool) for tool in (turn.tools or (turn.tool,)))


def _call(tool: TraceTool) -> ToolCall:
    return ToolCall(
        tool.name,
        tool.command_head or "",
        tool.sleep_seconds,
        tool.declared_timeout_seconds,
        tool.background,
    )


def _in_order(recorded: Sequence[RecordedAbsence]) -> Iterator[tuple[RecordedAbsence, bool]]:
    """Starts and ends in the order of time; at the same time ends come first, save that a call starts before it ends."""
    moments = [(one.began_at, 1, index) for index, one in enumerate(recorded)]
    moments += [
        (one.began_at + one.duration_seconds, 0 if one.duration_seconds > 0 else 2, index)
        for index, one in enumerate(recorded)
    ]
    for _, kind, index in sorted(moments):
        yield recorded[index], kind != 1
