"""What each session of the waiting pool needs to be placed, remembered for as long as the session stays as it was.

Past the knee most decisions find the same sessions waiting as the one before, so only those that changed are weighed. A
session's epoch tells: it moves on with whatever a plan is computed from. It must not know replicas, values or plans.
"""

from collections.abc import Callable

from tao.core.ids import SessionId
from tao.core.ports import View
from tao.core.session import Session


class PoolNeeds:
    """The pool with what each session needs, in tokens, as `weigh` says it."""

    def __init__(self, weigh: Callable[[View, Session], int]) -> None:
        self._weigh = weigh
        self._known: dict[SessionId, tuple[Session, int, int]] = {}

    def of(self, view: View) -> list[tuple[Session, int]]:
        """Sessions of the pool in its order, each with the tokens that it needs."""
        sessions, known = view.sessions, self._known
        present: dict[SessionId, tuple[Session, int, int]] = {}
        for name in view.pool:
            session, before = sessions[name], known.get(name)
            # a session that was closed and came back under its name is another record, with epochs of its own
            if before is None or before[0] is not session or before[1] != session.epoch:
                before = session, session.epoch, self._weigh(view, session)
            present[name] = before
        self._known = present
        return [(session, needed_tokens) for session, _, needed_tokens in present.values()]
