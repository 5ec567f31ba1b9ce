"""Tool-return readiness (method, section 4; paper eq. 5-6): 1 for a session that is back or about to be, else 0.

What the paper leaves open is decided here: a prediction that is overdue is believed again only within probes whose
distances double, and no longer than `stale_seconds` after the moment it named; a promise of the tool interface is believed
for `stale_seconds` after it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tao.core.facts import Fact, ToolEnded
from tao.core.phases import Acting
from tao.core.session import Session
from tao.policies.returns import ReturnPredictor


class Readiness(Protocol):
    """Judges which sessions need a replica now or in a moment."""

    def ready(self, session: Session, at: float) -> int:
        """1 when the session is back or is expected within the horizon, else 0."""

    def lapsed(self, session: Session, at: float) -> bool:
        """Whether the session is overdue beyond belief: nothing says any more that it will come back."""

    def observe(self, fact: Fact) -> None:
        """Learn from what happened."""

    def explain(self, session: Session, at: float) -> Mapping[str, object]:
        """The prediction behind the answer, as JSON-ready data."""


@dataclass(frozen=True, slots=True)
class _Return:
    """The moment at which a session is expected back."""

    at: float
    source: str


class ToolReadiness:
    """Completion observed, then a promised return, then the predictor."""

    def __init__(
        self, predictor: ReturnPredictor, horizon_seconds: float = 1.0, stale_seconds: float = 30.0
    ) -> None:
        self._predictor = predictor
        self._horizon_seconds = horizon_seconds
        self._stale_seconds = stale_seconds

    def ready(self, session: Session, at: float) -> int:
        phase = session.phase
        if not isinstance(phase, Acting) or phase.finished_at is not None:
            return 1
        overdue_seconds = at - self._expected(phase, at).at
        if overdue_seconds <= 0:
            return int(overdue_seconds >= -self._horizon_seconds)
        return int(overdue_seconds <= self._stale_seconds and self._in_probe(overdue_seconds))

    def lapsed(self, session: Session, at: float) -> bool:
        phase = session.phase
        if not isinstance(phase, Acting):
            return False
        expected_at = self._expected(phase, at).at if phase.finished_at is None else phase.finished_at
        return at - expected_at > self._stale_seconds

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, ToolEnded):
            self._predictor.learn(fact.tools, fact.duration_seconds)

    def explain(self, session: Session, at: float) -> Mapping[str, object]:
        phase = session.phase
        if not isinstance(phase, Acting):
            return {}
        expected = self._expected(phase, at)
        return {
            "tools": [f"{tool.name} {tool.command_head}".strip() for tool in phase.tools],
            "running_seconds": at - phase.since,
            "returns_in_seconds": expected.at - at,
            "source": "completion observed" if phase.finished_at is not None else expected.source,
        }

    def _expected(self, phase: Acting, at: float) -> _Return:
        fresh = phase.told_at is not None and at - phase.told_at <= self._stale_seconds
        if phase.expected_at is not None and fresh:
            return _Return(phase.expected_at, "told by the tool interface")
        prediction = self._predictor.predict(phase.tools)
        return _Return(phase.since + prediction.duration_seconds, prediction.source)

    def _in_probe(self, overdue_seconds: float) -> bool:
        """Probes as long as the horizon H begin at 0, 2H, 6H, 14H, ... after the predicted return."""
        start = 0.0
        gap = self._horizon_seconds
        while start + self._horizon_seconds < overdue_seconds:
            start += self._horizon_seconds + gap
            gap = 2.0 * gap + self._horizon_seconds
        return overdue_seconds >= start


class NoReadiness:
    """The ablation: the coordinate says nothing of any session, and every absence is believed for the same time."""

    def __init__(self, believed_seconds: float = 35.0) -> None:
        self._believed_seconds = believed_seconds

    def ready(self, session: Session, at: float) -> int:  # noqa: ARG002
        return 0

    def lapsed(self, session: Session, at: float) -> bool:
        return isinstance(session.phase, Acting) and at - session.phase.since > self._believed_seconds

    def observe(self, fact: Fact) -> None:
        pass

    def explain(self, session: Session, at: float) -> Mapping[str, object]:  # noqa: ARG002
        return {}
