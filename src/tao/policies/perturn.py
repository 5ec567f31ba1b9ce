"""Policies that place each turn by itself and hold nothing back: what routers do. For comparison.

A session's admission begins and ends with its turns, so that reservations show the load of the moment; there is no waiting
pool to decide about, except for turns that arrived while no replica was up.
"""

from collections.abc import Iterable, Mapping, Sequence

from tao.core.commands import Reason
from tao.core.events import PlanReady
from tao.core.facts import Fact, SessionClosed
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Waiting
from tao.core.ports import Assignment, Decision, Hold, Place, View
from tao.core.session import Replica, Session, Turn


class PerTurnPolicy:
    """The frame: a subclass says where a session's next turn goes. Admissions end with the turn."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def choose(self, view: View, session: Session) -> Replica:
        """The UP replica for the session's next turn; at least one is up."""
        raise NotImplementedError

    def weight_tokens(self, session: Session) -> int:
        return session.live_tokens

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        return Place(self.choose(view, session).id, Reason.ROUTED)

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        return False

    def next_planning_at(self, view: View, at: float) -> float | None:
        """Turns are held only while no replica is up; they are due as soon as one is."""
        return at if view.waiting_sessions and view.up_replicas() else None

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def decide(self, view: View, at: float) -> Decision:  # noqa: ARG002
        pool = [view.sessions[session] for session in view.pool]
        waiting = [session for session in pool if isinstance(session.phase, Waiting)]
        return Decision(placements=[(session.id, self.choose(view, session).id) for session in waiting])

    def select(
        self,
        view: View,  # noqa: ARG002
        plan: PlanReady,  # noqa: ARG002
        changed: Iterable[SessionId],  # noqa: ARG002
        at: float,  # noqa: ARG002
    ) -> Sequence[Assignment]:
        return ()

    def observe(self, view: View, fact: Fact) -> None:
        pass

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:  # noqa: ARG002
        return {"weight_tokens": self.weight_tokens(session)}


class RoundRobin(PerTurnPolicy):
    """Turn after turn to the next replica that is up."""

    def __init__(self) -> None:
        self._turns = 0

    @property
    def name(self) -> str:
        return "round-robin"

    def choose(self, view: View, session: Session) -> Replica:  # noqa: ARG002
        up = view.up_replicas()
        chosen = up[self._turns % len(up)]
        self._turns += 1
        return chosen


class StickyLeastLoaded(PerTurnPolicy):
    """A session stays where it began: on the replica with fewest sessions then (vLLM router's policy of that name)."""

    def __init__(self) -> None:
        self._replica_of: dict[SessionId, ReplicaId] = {}
        self._sessions_on: dict[ReplicaId, int] = {}

    @property
    def name(self) -> str:
        return "sticky-least-loaded"

    def choose(self, view: View, session: Session) -> Replica:
        up = view.up_replicas()
        known = self._replica_of.get(session.id)
        for replica in up:
            if replica.id == known:
                return replica
        chosen = min(up, key=lambda replica: self._sessions_on.get(replica.id, 0))
        self._move(session.id, chosen.id)
        return chosen

    def observe(self, view: View, fact: Fact) -> None:  # noqa: ARG002
        if isinstance(fact, SessionClosed):
            self._move(fact.session, None)

    def _move(self, session: SessionId, replica: ReplicaId | None) -> None:
        old = self._replica_of.pop(session, None)
        if old is not None:
            self._sessions_on[old] -= 1
        if replica is not None:
            self._replica_of[session] = replica
            self._sessions_on[replica] = self._sessions_on.get(replica, 0) + 1
