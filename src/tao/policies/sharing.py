"""How much of a session is booked already wherever it may go: so much less its admission takes on any replica.

The planner knows one weight for a session. What only some replicas hold is not taken off, so that no plan overfills one. It
must not know plans or values.
"""

from collections.abc import Callable

from tao.core.events import PrefixNode
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Session

Pieces = tuple[PrefixNode, ...]


class SharedEverywhere:
    """One look at the books for sessions of the waiting pool; it holds as long as nothing is booked or given back.

    They have no admission of their own, so all who begin alike and may go to the same replicas are looked up once.
    """

    def __init__(self, view: View, shared_prefix: Callable[[Session], Pieces]) -> None:
        self._view = view
        self._shared_prefix = shared_prefix
        self._known: dict[tuple[Pieces, str, ReplicaId | None], int] = {}

    def tokens(self, session: Session) -> int:
        """Tokens of the session's beginning that others have booked on every replica where it may go."""
        pieces = self._shared_prefix(session)
        if not pieces:
            return 0
        asked = pieces, session.model, session.pinned
        known = self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._least(session)
        return known

    def _least(self, session: Session) -> int:
        view = self._view
        pinned = [replica for replica in view.up_replicas() if replica.id == session.pinned]
        where = pinned or view.eligible_replicas(session)
        return min((view.shared_tokens(session, replica.id) for replica in where), default=0)
