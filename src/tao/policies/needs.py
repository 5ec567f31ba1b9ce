"""What each session of the waiting pool needs to be placed, remembered for as long as the session stays as it was.

Past the knee most decisions find the same sessions waiting as the one before, so only those that changed are weighed. A
session's epoch tells: it moves on with whatever a plan is computed from. It must not know replicas, values or plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Session


@dataclass(frozen=True, slots=True)
class Need:
    """What a session needed in tokens when it was at this epoch. `only`: where that is true; None: wherever it may go."""

    session: Session
    epoch: int
    tokens: int
    only: tuple[ReplicaId, ...] | None = None


class PoolNeeds:
    """The pool with what each session needs, as `weigh` says it."""

    def __init__(self, weigh: Callable[[View, Session], int]) -> None:
        self._weigh = weigh
        self._known: dict[SessionId, Need] = {}

    def forget(self) -> None:
        """Weigh everybody anew: something else than the sessions has changed."""
        self._known = {}

    def of(self, view: View) -> Sequence[Need]:
        """Of each session of the pool, in the pool's order."""
        sessions, known = view.sessions, self._known
        present: dict[SessionId, Need] = {}
        for name in view.pool:
            session, need = sessions[name], known.get(name)
            # a session that was closed and came back under its name is another record, with epochs of its own
            if need is None or need.session is not session or need.epoch != session.epoch:
                need = Need(session, session.epoch, self._weigh(view, session))
            present[name] = need
        self._known = present
        return tuple(present.values())
