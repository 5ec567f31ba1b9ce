"""How much of a session is booked already where it may go: so much less its admission takes there.

The planner knows one weight for a session. So what only some replicas hold is not taken off, and no plan overfills one;
unless a session fits nowhere but there: then these replicas are all that it may choose from, since no other would take it
anyway. It must not know plans or values.
"""

from collections.abc import Callable, Mapping, Sequence

from tao.core.events import PrefixNode
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Replica, Session
from tao.policies.needs import Need

Pieces = tuple[PrefixNode, ...]


class Sharing:
    """One look at the books for sessions of the waiting pool; it holds as long as nothing is booked or given back.

    They have no admission of their own, so all who begin alike and may go to the same replicas are looked up once.
    """

    def __init__(self, view: View, shared_prefix: Callable[[Session], Pieces]) -> None:
        self._view = view
        self._shared_prefix = shared_prefix
        self._known: dict[tuple[Pieces, str, ReplicaId | None], int] = {}

    def less(self, need: Need, free_tokens: Mapping[ReplicaId, int]) -> Need:
        """The need without what is booked already: on every replica where the session may go, or, if that is too much for
        each of them, on those that have room for the rest.
        """
        if not self._shared_prefix(need.session):
            return need
        tokens = need.tokens - self.everywhere_tokens(need.session)
        if tokens > max(free_tokens.values(), default=0):
            costs = {replica.id: need.tokens - held for replica, held in self._held(need.session)}
            fitting = {replica: cost for replica, cost in costs.items() if cost <= free_tokens[replica]}
            if fitting:
                return Need(need.session, need.epoch, max(fitting.values()), tuple(fitting))
        return Need(need.session, need.epoch, tokens)

    def everywhere_tokens(self, session: Session) -> int:
        """Tokens of the session's beginning that others have booked on every replica where it may go."""
        pieces = self._shared_prefix(session)
        if not pieces:
            return 0
        asked = pieces, session.model, session.pinned
        known = self._known.get(asked)
        if known is None:
            least = min((held for _, held in self._held(session)), default=0)
            known = self._known[asked] = least
        return known

    def _held(self, session: Session) -> Sequence[tuple[Replica, int]]:
        view = self._view
        pinned = [replica for replica in view.up_replicas() if replica.id == session.pinned]
        where = pinned or view.eligible_replicas(session)
        return [(replica, view.shared_tokens(session, replica.id)) for replica in where]
