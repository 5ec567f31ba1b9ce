"""A session stays where it began: vLLM router's `sticky_least_loaded` (its pull request 235).

It counts open sessions, idle ones included; it must not know how large they are.
"""

from tao.core.facts import Fact, SessionClosed
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Session, Turn
from tao.policies.baselines.hashing import rendezvous_weight


class StickyLeastLoaded:
    """A new session goes to the replica with fewest open sessions; the rendezvous weight decides among equals.

    It moves only when its replica is not up, and then stays where it went.
    """

    def __init__(self) -> None:
        self._replica_of: dict[SessionId, ReplicaId] = {}
        self._sessions_on: dict[ReplicaId, int] = {}

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:  # noqa: ARG002
        up = [replica.id for replica in view.eligible_replicas(session)]
        known = self._replica_of.get(session.id)
        if known in up:
            return known
        chosen = min(up, key=lambda r: (self._sessions_on.get(r, 0), -rendezvous_weight(session.id, r)))
        self._move(session.id, chosen)
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
