"""A policy that passes everything on to another one and checks what the core owes it: facts that match, told in order."""

from collections.abc import Iterable, Mapping, Sequence

from tao.core.commands import Reason
from tao.core.events import PlanReady, PrefixNode
from tao.core.facts import (
    Fact,
    SessionClosed,
    SessionInterrupted,
    ToolEnded,
    ToolStarted,
    TurnDispatched,
    TurnHeld,
    TurnSettled,
)
from tao.core.ids import SessionId, TurnId
from tao.core.phases import Acting
from tao.core.ports import Assignment, Decision, Hold, Place, Policy, View
from tao.core.session import Session, Turn


class Watched:
    """Wraps a policy. An unmet promise of the core, or an answer that breaks the policy's own, is an assertion."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.facts: list[Fact] = []
        self._at = 0.0
        self._acting: set[SessionId] = set()
        self._on_engine: set[TurnId] = set()

    @property
    def name(self) -> str:
        return self.policy.name

    def weight_tokens(self, session: Session) -> int:
        weight_tokens = self.policy.weight_tokens(session)
        assert weight_tokens >= 0
        return weight_tokens

    def shared_prefix(self, session: Session) -> tuple[PrefixNode, ...]:
        shared = self.policy.shared_prefix(session)
        assert shared == session.shared_prefix[: len(shared)], "no beginning of the prompt"
        return shared

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        assert view.eligible_replicas(session), "asked although no replica that serves it is up"
        answer = self.policy.place(view, session, turn, at)
        if isinstance(answer, Place):
            assert answer.replica in {replica.id for replica in view.up_replicas()}
            if answer.reason is not Reason.HOME or session.home != answer.replica:
                assert view.replicas[answer.replica].serves(session.model), "does not serve it"
        return answer

    def keeps_admission(self, view: View, session: Session, at: float) -> bool | None:
        return self.policy.keeps_admission(view, session, at)

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self.policy.next_planning_at(view, at)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        chosen = self.policy.interrupts(view, at)
        assert len(chosen) == len(set(chosen))
        acting = {s.id for replica in view.replicas for s in view.acting_on(replica)}
        assert set(chosen) <= acting
        return chosen

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        chosen = self.policy.lapsed(view, at)
        assert len(chosen) == len(set(chosen))
        assert all(isinstance(view.sessions[session].phase, Acting) for session in chosen)
        return chosen

    def decide(self, view: View, at: float) -> Decision:
        decision = self.policy.decide(view, at)
        up = {replica.id for replica in view.up_replicas()}
        for session, replica in decision.placements:
            assert session in view.pool
            assert replica in up
        if decision.request is not None:
            assert set(decision.request.free_tokens) <= up
            assert all(candidate.session in view.pool for candidate in decision.request.candidates)
        return decision

    def select(
        self, view: View, plan: PlanReady, changed: Iterable[SessionId], at: float
    ) -> Sequence[Assignment]:
        return self.policy.select(view, plan, changed, at)

    def observe(self, view: View, fact: Fact) -> None:
        assert fact.at >= self._at, "facts go back in time"
        self._at = fact.at
        self.facts.append(fact)
        match fact:
            case TurnDispatched(turn=turn):
                assert view.turns[turn].replica == fact.replica
                self._on_engine.add(turn)
            case TurnSettled(turn=turn):
                self._on_engine.remove(turn)
            case ToolStarted(session=session):
                assert session not in self._acting
                self._acting.add(session)
            case ToolEnded(session=session):
                assert fact.duration_seconds >= 0
                self._acting.remove(session)
            case TurnHeld(session=session) | SessionInterrupted(session=session):
                assert session in view.pool
            case SessionClosed(session=session):
                assert session not in view.sessions
                self._acting.discard(session)
        self.policy.observe(view, fact)

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        return self.policy.explain(view, session, at)
