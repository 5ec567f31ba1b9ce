"""First come, first served over whole sessions: who came first is admitted first, keeps its place, and is let back first.

The order that program-level FCFS schedulers use (Continuum without its time-to-live), under a token budget per replica.
It must not know credit, readiness or sizes.
"""

from collections.abc import Sequence

from tao.core.commands import Reason
from tao.core.facts import Fact
from tao.core.ids import SessionId
from tao.core.phases import Waiting
from tao.core.ports import Decision, Hold, Place, View
from tao.core.session import Replica, Session, Turn
from tao.policies.baselines.unplanned import Unplanned, is_home_up
from tao.policies.pacing import OnChange


class SessionFcfs(Unplanned):
    """Sessions are served in the order in which they were opened; the first that does not fit holds up all behind it."""

    name = "session-fcfs"

    def __init__(self) -> None:
        self._pacing = OnChange()

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        if session.home is not None and is_home_up(view, session):
            return Place(session.home, Reason.HOME)
        if view.waiting_sessions:
            return Hold("earlier sessions wait")
        chosen = self._replica_for(view, session, {})
        return Hold("no replica has room") if chosen is None else Place(chosen.id, Reason.ROOM)

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        return True

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self._pacing.next_at(view, at)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        """Where reservations exceed the capacity, the sessions that came last give way."""
        chosen: list[SessionId] = []
        for replica in view.up_replicas():
            excess_tokens = -view.free_tokens(replica.id)
            for session in sorted(view.acting_on(replica.id), key=_arrival, reverse=True):
                if excess_tokens <= 0:
                    break
                chosen.append(session.id)
                excess_tokens -= self.weight_tokens(session)
        return chosen

    def decide(self, view: View, at: float) -> Decision:
        """In order of arrival, until one does not fit: it holds up all behind it that ask for the same model.

        Sessions whose tools still run are not waited for.
        """
        self._pacing.planned(at)
        held_up: dict[str, None] = {}
        taken: dict[str, int] = {}
        placements = []
        waiting = [s for s in map(view.sessions.__getitem__, view.pool) if isinstance(s.phase, Waiting)]
        for session in sorted(waiting, key=_arrival):
            if session.model in held_up:
                continue
            chosen = self._replica_for(view, session, taken)
            if chosen is None:
                held_up[session.model] = None
                continue
            placements.append((session.id, chosen.id))
            taken[chosen.id] = taken.get(chosen.id, 0) + self.weight_tokens(session)
        return Decision(placements)

    def observe(self, view: View, fact: Fact) -> None:  # noqa: ARG002
        self._pacing.observe(fact)

    def _replica_for(self, view: View, session: Session, taken: dict[str, int]) -> Replica | None:
        """Where it was last if that has room, else where most room is."""

        def free_tokens(replica: Replica) -> int:
            return view.free_tokens(replica.id) - taken.get(replica.id, 0)

        up = view.eligible_replicas(session)
        room = [replica for replica in up if free_tokens(replica) >= self.weight_tokens(session)]
        last = session.placement.replica if session.placement is not None else None
        return max(room, key=lambda replica: (replica.id == last, free_tokens(replica)), default=None)


def _arrival(session: Session) -> tuple[float, SessionId]:
    return session.opened_at, session.id
