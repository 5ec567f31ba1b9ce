"""Tool-return readiness (method, section 4; paper eq. 5-6): 1 for a session that is back or about to be, else 0.

Completion observed beats a promise of the tool interface, and that beats the forecast of the predictor. What the paper
leaves open is decided here: how sure a forecast must be, and that one which is overdue is believed again only within probes
whose distances double, no longer than `stale_seconds`; a promise is believed for `stale_seconds` after it was made. A
session whose sub-agents work comes back when they have ended, whatever was promised or forecast.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tao.core.facts import Fact, SessionClosed, ToolEnded, ToolMeasured, ToolsNamed, ToolStarted
from tao.core.ids import SessionId
from tao.core.phases import Acting
from tao.core.session import Session
from tao.policies.farewells import (
    HUMAN_SECONDS_MAX,
    SILENCE_SECONDS_MIN,
    TOLD_LEASE_SECONDS,
    Farewells,
)
from tao.policies.returns import (
    Absence,
    Forecast,
    ReturnCalibration,
    ReturnPredictor,
    chance_within,
    remaining_seconds,
)


class Readiness(Protocol):
    """Judges which sessions need a replica now or in a moment."""

    def ready(self, session: Session, at: float) -> int:
        """1 when the session is back or is expected within the horizon, else 0."""

    def away_seconds(self, session: Session, at: float) -> float:
        """How much longer the session is expected to stay away; 0 when it is back or overdue."""

    def lapsed(self, session: Session, at: float) -> bool:
        """Whether the session is overdue beyond belief: nothing says any more that it will come back."""

    def observe(self, fact: Fact) -> None:
        """Learn from what happened."""

    def explain(self, session: Session, at: float) -> Mapping[str, object]:
        """The prediction behind the answer, as JSON-ready data."""


@dataclass(frozen=True, slots=True)
class ReadyRule:
    """When a forecast makes a session ready.

    Its chance to be back within `horizon_seconds` must be at least `chance_least`. Past the end of the forecast it is ready
    within probes as long as the horizon H that begin 0, 2 H, 6 H, 14 H, ... after it, for `stale_seconds`. A session whose
    return is overdue by `lease_seconds` is not believed in any more; by `told_lease_seconds` where nothing but the forecast
    speaks of its tools and its tenant's sessions say when they are over (`Farewells`, which also judges those that asked
    for no tool).
    """

    horizon_seconds: float = 1.0
    chance_least: float = 0.5
    stale_seconds: float = 30.0
    lease_seconds: float = 15.0
    told_lease_seconds: float = TOLD_LEASE_SECONDS

    def holds(self, forecast: Forecast, elapsed_seconds: float) -> bool:
        """Whether a session that has been away so long is ready."""
        if chance_within(forecast, elapsed_seconds, self.horizon_seconds) >= self.chance_least:
            return True
        return self.in_probe(elapsed_seconds - forecast.exhausted_seconds)

    def in_probe(self, overdue_seconds: float) -> bool:
        """Whether an overdue return is believed in at this moment."""
        if not 0.0 <= overdue_seconds <= self.stale_seconds:
            return False
        start = 0.0
        gap = self.horizon_seconds
        while start + self.horizon_seconds < overdue_seconds:
            start += self.horizon_seconds + gap
            gap = 2.0 * gap + self.horizon_seconds
        return overdue_seconds >= start


@dataclass(slots=True)
class _Away:
    """What is known of one absence. `first` was made when its tools were told, `latest` at `made_at`. `measured`: its
    tools have taught one by one.
    """

    absence: Absence
    since: float
    first: Forecast
    latest: Forecast
    made_at: float
    measured: bool = False


class ToolReadiness:
    """Completion observed, then a promised return, then the forecast, made anew every `refresh_seconds`."""

    def __init__(
        self, predictor: ReturnPredictor, rule: ReadyRule | None = None, refresh_seconds: float = 10.0
    ) -> None:
        self.predictor = predictor
        self._calibration: ReturnCalibration | None = None
        self._rule = rule or ReadyRule()
        self._refresh_seconds = refresh_seconds
        self._farewells = Farewells()
        self._away: dict[SessionId, _Away] = {}
        self._parallel: dict[SessionId, tuple[Absence, float]] = {}  # over, and not taught yet

    def judged(self) -> ReturnCalibration:
        """The forecasts made at the start of absences against what came, since the first time that this was asked for:
        to judge costs as much as to forecast, and where nobody reads it nobody pays for it.
        """
        if self._calibration is None:
            self._calibration = ReturnCalibration()
        return self._calibration

    def ready(self, session: Session, at: float) -> int:
        phase = session.phase
        if not isinstance(phase, Acting) or phase.finished_at is not None:
            return 1
        if session.awaits_children:
            return 0
        promised_at = self._promised_at(phase, at)
        if promised_at is not None:
            overdue_seconds = at - promised_at
            return int(
                -self._rule.horizon_seconds <= overdue_seconds < 0 or self._rule.in_probe(overdue_seconds)
            )
        return int(self._rule.holds(self._forecast(session, phase, at), at - phase.since))

    def away_seconds(self, session: Session, at: float) -> float:
        phase = session.phase
        if not isinstance(phase, Acting) or phase.finished_at is not None:
            return 0.0
        promised_at = self._promised_at(phase, at)
        if promised_at is not None:
            left_seconds = max(0.0, promised_at - at)
        else:
            left_seconds = remaining_seconds(self._forecast(session, phase, at), 0.5, at - phase.since)
        return max(left_seconds, self._rule.horizon_seconds) if session.awaits_children else left_seconds

    def lapsed(self, session: Session, at: float) -> bool:
        phase = session.phase
        if not isinstance(phase, Acting):
            return False
        if phase.finished_at is not None:
            expected_at: float | None = phase.finished_at
        elif session.awaits_children:
            expected_at = phase.since  # their end will be told: it need not hold a place until then
        else:
            expected_at = self._promised_at(phase, at)
        if expected_at is None:
            return self._outstayed(session, phase, at)
        return at - expected_at > self._rule.lease_seconds

    def _outstayed(self, session: Session, phase: Acting, at: float) -> bool:
        """Whether a session is away for longer than its forecast and its lease, or surely over.

        Who has hardly been away is not forecast; but past `refresh_seconds` a tool's forecast is asked for all the same, so
        that it is made anew on time.
        """
        tenant, has_tools, elapsed_seconds = session.tenant, bool(phase.tools), at - phase.since
        told = self._farewells.are_told(tenant)
        lease_seconds = self._rule.told_lease_seconds if told else self._rule.lease_seconds
        if not has_tools:
            lease_seconds = self._farewells.lease_seconds(tenant)
        unquestioned_seconds = lease_seconds if told else SILENCE_SECONDS_MIN
        if has_tools:
            unquestioned_seconds = min(unquestioned_seconds, self._refresh_seconds)
        if elapsed_seconds <= unquestioned_seconds:
            return False
        forecast = self._forecast(session, phase, at)
        if self._farewells.surely_over(
            tenant, has_tools=has_tools, elapsed_seconds=elapsed_seconds, forecast=forecast
        ):
            return True
        expected_seconds = forecast.conservative_seconds
        if not has_tools:
            return self._farewells.over(tenant, elapsed_seconds, expected_seconds)
        return elapsed_seconds - expected_seconds > lease_seconds

    def observe(self, fact: Fact) -> None:
        self._farewells.observe(fact)
        match fact:
            case ToolStarted(at=at, session=session, tenant=tenant, tools=tools):
                self._teach_parallel(session)
                absence = Absence(tools, tenant, session)
                forecast = self.predictor.predict(absence)
                self._away[session] = _Away(absence, at, forecast, forecast, at)
            case ToolsNamed(at=at, session=session, tenant=tenant, tools=tools):
                known = self._away.get(session)
                if known is not None:
                    known.absence = Absence(tools, tenant, session)
                    known.first = known.latest = self.predictor.predict(known.absence)
                    known.made_at = at
            case ToolMeasured(session=session, tenant=tenant, tool=tool, duration_seconds=duration_seconds):
                self._parallel.pop(session, None)
                known = self._away.get(session)
                if known is not None:
                    known.measured = True
                self.predictor.learn(Absence((tool,), tenant, session), duration_seconds)
            case ToolEnded():
                self._ended(fact)
            case SessionClosed(at=at, session=session):
                self._teach_parallel(session)
                known = self._away.pop(session, None)
                if known is not None:
                    self.predictor.learn_unfinished(known.absence, at - known.since)

    def _ended(self, fact: ToolEnded) -> None:
        """Parallel tools teach as one only where nobody measures each of them, which may be told after their end."""
        absence = Absence(fact.tools, fact.tenant, fact.session)
        known = self._away.pop(fact.session, None)
        if known is not None and self._calibration is not None:
            self._calibration.record(known.absence, known.first, fact.duration_seconds)
        if len(fact.tools) <= 1:
            self.predictor.learn(absence, fact.duration_seconds)
        elif known is None or not known.measured:
            self._parallel[fact.session] = absence, fact.duration_seconds

    def _teach_parallel(self, session: SessionId) -> None:
        """Nobody has measured the parallel tools of the last absence: the history of all calls learns from it."""
        waiting = self._parallel.pop(session, None)
        if waiting is not None:
            self.predictor.learn(*waiting)

    def explain(self, session: Session, at: float) -> Mapping[str, object]:
        phase = session.phase
        if not isinstance(phase, Acting):
            return {}
        told: dict[str, object] = {
            "tools": [f"{tool.name} {tool.command_head}".strip() for tool in phase.tools],
            "running_seconds": at - phase.since,
            "returns_in_seconds": self.away_seconds(session, at),
        }
        if phase.finished_at is not None:
            return {**told, "source": "completion observed", "evidence_seconds_ago": at - phase.finished_at}
        if session.awaits_children:
            working = [child for child, at_work in session.children.items() if at_work]
            return {
                **told,
                "source": "sub-agents at work",
                "sub_agents": working,
                "evidence_seconds_ago": 0.0,
            }
        if phase.told_at is not None and self._promised_at(phase, at) is not None:
            return {
                **told,
                "source": "told by the tool interface",
                "evidence_seconds_ago": at - phase.told_at,
            }
        forecast, elapsed_seconds = self._forecast(session, phase, at), at - phase.since
        known = self._away.get(session.id)
        return {
            **told,
            "returns_in_seconds_p80": remaining_seconds(forecast, 0.8, elapsed_seconds),
            "chance_within_horizon": chance_within(forecast, elapsed_seconds, self._rule.horizon_seconds),
            "source": forecast.source,
            "evidence_seconds_ago": at - known.made_at if known is not None else 0.0,
        }

    def _promised_at(self, phase: Acting, at: float) -> float | None:
        fresh = phase.told_at is not None and at - phase.told_at <= self._rule.stale_seconds
        return phase.expected_at if fresh else None

    def _forecast(self, session: Session, phase: Acting, at: float) -> Forecast:
        known = self._away.get(session.id)
        if known is None or known.since != phase.since:
            return self.predictor.predict(Absence(phase.tools, session.tenant, session.id))
        if at - known.made_at > self._refresh_seconds:
            known.latest, known.made_at = self.predictor.predict(known.absence), at
        return known.latest


class NoReadiness:
    """The ablation: the coordinate says nothing of any session, and every tool is believed for the same time.

    Who asked for no tool is judged as with readiness, which is about tools.
    """

    def __init__(self, believed_seconds: float = 35.0) -> None:
        self._believed_seconds = believed_seconds
        self._farewells = Farewells()

    def ready(self, session: Session, at: float) -> int:  # noqa: ARG002
        return 0

    def away_seconds(self, session: Session, at: float) -> float:  # noqa: ARG002
        return 0.0

    def lapsed(self, session: Session, at: float) -> bool:
        phase = session.phase
        if not isinstance(phase, Acting):
            return False
        elapsed_seconds = at - phase.since
        if not phase.tools and phase.finished_at is None:
            return self._farewells.over(session.tenant, elapsed_seconds, HUMAN_SECONDS_MAX)
        return elapsed_seconds > self._believed_seconds

    def observe(self, fact: Fact) -> None:
        self._farewells.observe(fact)

    def explain(self, session: Session, at: float) -> Mapping[str, object]:  # noqa: ARG002
        return {}
