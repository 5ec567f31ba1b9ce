"""The turns on each replica in the order in which they were sent, with what was believed cached when they were.

Engines report running and waiting requests; a policy does not see those gauges, but it sees every turn that is sent and
every one that ends, and can tell from their tokens which of them do not fit.
"""

from collections.abc import Iterator

from tao.core.facts import Fact, TurnDispatched, TurnSettled
from tao.core.ids import ReplicaId, TurnId
from tao.core.ports import View
from tao.core.session import Replica, Turn


class InFlight:
    """Tell it of each turn that is sent, and every fact."""

    def __init__(self) -> None:
        self._turns_on: dict[ReplicaId, dict[TurnId, int]] = {}
        self._replica_of: dict[TurnId, ReplicaId] = {}

    def turns_on(self, view: View, replica: ReplicaId) -> Iterator[tuple[Turn, int]]:
        """The turns on the replica, oldest first, each with its prompt tokens that were not expected in the cache."""
        for turn, new_tokens in self._turns_on.get(replica, {}).items():
            yield view.turns[turn], new_tokens

    def queued_turns(self, view: View, replica: Replica) -> int:
        """How many turns wait inside the engine: those that do not fit beside the ones sent before them."""
        used_tokens = queued = 0
        for turn, _ in self.turns_on(view, replica.id):
            used_tokens += turn.live_tokens
            queued += used_tokens > replica.capacity_tokens
        return queued

    def sent(self, fact: TurnDispatched, cached_tokens: int) -> None:
        """A turn was sent; a retry moves it."""
        self._forget(fact.turn)
        self._replica_of[fact.turn] = fact.replica
        new_tokens = max(0, fact.prompt_tokens - cached_tokens)
        self._turns_on.setdefault(fact.replica, {})[fact.turn] = new_tokens

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, TurnSettled):
            self._forget(fact.turn)

    def _forget(self, turn: TurnId) -> None:
        replica = self._replica_of.pop(turn, None)
        if replica is not None:
            del self._turns_on[replica][turn]
