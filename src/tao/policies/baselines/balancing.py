"""Routers that know nothing of sessions: turn after turn in a circle, or to where fewest turns are in flight.

The latter is also what other routers fall back on.
"""

from collections.abc import Sequence

from tao.core.facts import Fact
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Replica, Session, Turn


def least_loaded(replicas: Sequence[Replica]) -> Replica:
    """The replica with fewest turns in flight; the first that joined among equals."""
    return min(replicas, key=lambda replica: replica.turns_in_flight)


class RoundRobin:
    """Turn after turn to the next replica that is up."""

    def __init__(self) -> None:
        self._turns = 0

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:  # noqa: ARG002
        up = view.eligible_replicas(session)
        chosen = up[self._turns % len(up)]
        self._turns += 1
        return chosen.id

    def observe(self, view: View, fact: Fact) -> None:
        pass


class LeastLoaded:
    """To the replica with fewest turns in flight."""

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:  # noqa: ARG002
        return least_loaded(view.eligible_replicas(session)).id

    def observe(self, view: View, fact: Fact) -> None:
        pass
