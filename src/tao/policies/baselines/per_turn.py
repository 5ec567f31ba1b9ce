"""The frame of policies that place each turn by itself and hold nothing back: what request routers do.

A `Router` chooses a replica; `PerTurnPolicy` gives it the place of a policy. Admissions last as long as the turn, so the
ledger holds what the turns in flight hold and nothing for sessions whose tools run. It must not know what a router
looks at.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tao.core.commands import Reason
from tao.core.events import PlanReady, PrefixNode
from tao.core.facts import Fact
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import turns_of
from tao.core.ports import Assignment, Decision, Hold, Place, View
from tao.core.session import Session, Turn


class Router(Protocol):
    """Chooses where one turn goes."""

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:
        """One of `View.eligible_replicas`; there is one. The session of a first turn is not in the view yet."""

    def observe(self, view: View, fact: Fact) -> None:
        """Learn from what happened. Where a turn really went is told by `TurnDispatched`."""


class PerTurnPolicy:
    """A policy made of a router."""

    def __init__(self, name: str, router: Router) -> None:
        self._name = name
        self._router = router

    @property
    def name(self) -> str:
        return self._name

    def weight_tokens(self, session: Session) -> int:
        """The context of the main line: booked while a turn is in flight."""
        return session.live_tokens

    def shared_prefix(self, session: Session) -> tuple[PrefixNode, ...]:  # noqa: ARG002
        return ()

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return Place(self._router.choose(view, session, turn, at), Reason.ROUTED)

    def keeps_admission(self, view: View, session: Session, at: float) -> None:
        """Admissions are for a turn."""

    def next_planning_at(self, view: View, at: float) -> float | None:
        """Turns are held only while no replica that serves them is up; they are due as soon as one is."""
        return at if view.waiting_sessions and self._next_held(view) is not None else None

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def decide(self, view: View, at: float) -> Decision:
        """Place the session that waits longest. One at a time, so that each choice sees the effect of the one before."""
        session = self._next_held(view)
        if session is None:
            return Decision()
        chosen = self._router.choose(view, session, view.turns[turns_of(session.phase)[0]], at)
        return Decision(placements=[(session.id, chosen)])

    @staticmethod
    def _next_held(view: View) -> Session | None:
        """The first session with held turns that a replica serves."""
        for session in map(view.sessions.__getitem__, view.pool):
            if turns_of(session.phase) and view.eligible_replicas(session):
                return session
        return None

    def select(
        self,
        view: View,  # noqa: ARG002
        plan: PlanReady,  # noqa: ARG002
        changed: Iterable[SessionId],  # noqa: ARG002
        at: float,  # noqa: ARG002
    ) -> Sequence[Assignment]:
        return ()

    def observe(self, view: View, fact: Fact) -> None:
        self._router.observe(view, fact)

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:  # noqa: ARG002
        return {
            "weight_tokens": self.weight_tokens(session),
            "turns_in_flight": {replica.id: replica.turns_in_flight for replica in view.up_replicas()},
        }
