"""How much of a session is booked already where it may go: so much less its admission takes there.

The planner knows one weight for a session. So what only some replicas hold is not taken off, and no plan overfills one;
unless a session fits nowhere but there: then these replicas are all that it may choose from, since no other would take it
anyway. It must not know plans or values.
"""

from collections.abc import Callable, Mapping

from tao.core.events import PrefixNode
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Session
from tao.policies.needs import Need

Pieces = tuple[PrefixNode, ...]


class Sharing:
    """One look at the books for sessions of the waiting pool; it holds as long as nothing is booked or given back.

    They have no admission of their own, so all who begin alike and may go to the same replicas are looked up once.
    """

    def __init__(self, view: View, shared_prefix: Callable[[Session], Pieces]) -> None:
        self._view = view
        self._shared_prefix = shared_prefix
        self._known: dict[tuple[Pieces, str, ReplicaId | None], Mapping[ReplicaId, int]] = {}

    def less(self, need: Need, free_tokens: Mapping[ReplicaId, int]) -> Need:
        """The need without what is booked already: on every replica where the session may go, or, if that is too much for
        each of them, on those that have room for the rest.
        """
        pieces = self._shared_prefix(need.session)
        if not pieces:
            return need
        held_tokens = self._held_tokens(need.session, pieces)
        tokens = need.tokens - min(held_tokens.values(), default=0)
        if tokens > max(free_tokens.values(), default=0):
            costs = {replica: need.tokens - held for replica, held in held_tokens.items()}
            fitting = {replica: cost for replica, cost in costs.items() if cost <= free_tokens[replica]}
            if fitting:
                return Need(need.session, need.epoch, max(fitting.values()), tuple(fitting))
        return Need(need.session, need.epoch, tokens)

    def _held_tokens(self, session: Session, pieces: Pieces) -> Mapping[ReplicaId, int]:
        """What others have booked of the pieces, by the replicas where the session may go."""
        asked = pieces, session.model, session.pinned
        known = self._known.get(asked)
        if known is None:
            view = self._view
            pinned = [replica for replica in view.up_replicas() if replica.id == session.pinned]
            where = pinned or view.eligible_replicas(session)
            known = self._known[asked] = {r.id: view.shared_tokens(session, r.id) for r in where}
        return known
