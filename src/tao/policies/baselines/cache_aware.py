"""The `cache_aware` routers of vLLM's router and of SGLang's model gateway.

Both follow the prefix while the load is balanced and the load when it is not; they differ in when that is, in how much of
a prompt must match, and in that vLLM's first looks for the session itself. Loads are turns in flight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tao.core.facts import Fact, SessionClosed, TurnDispatched
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Replica, Session, Turn
from tao.policies.baselines.balancing import least_loaded
from tao.policies.baselines.prefix_lines import Match, PrefixLines


class Imbalance(Protocol):
    """Says when load goes before locality."""

    def holds(self, view: View, up: Sequence[Replica]) -> bool:
        """Whether the replicas that are up are imbalanced."""


@dataclass(frozen=True, slots=True)
class TurnImbalance:
    """`max - min > turns and max > ratio * min` over turns in flight."""

    turns: int
    ratio: float

    def holds(self, view: View, up: Sequence[Replica]) -> bool:  # noqa: ARG002
        counts = [replica.turns_in_flight for replica in up]
        return max(counts) - min(counts) > self.turns and max(counts) > self.ratio * min(counts)


@dataclass(frozen=True, slots=True)
class UsageImbalance:
    """`max > overload or max - min > spread` over the share of KV capacity in use, 0 to 1; at 1 both are off."""

    overload: float = 1.0
    spread: float = 1.0

    def holds(self, view: View, up: Sequence[Replica]) -> bool:
        usages = [kv_usage(view, replica) for replica in up]
        return max(usages) > self.overload or max(usages) - min(usages) > self.spread


def kv_usage(view: View, replica: Replica) -> float:
    """Share of the KV capacity that turns in flight hold, 0 to 1: what an engine's usage gauge shows."""
    if not replica.capacity_tokens:
        return 1.0
    return min(1.0, 1.0 - view.free_tokens(replica.id) / replica.capacity_tokens)


def longest_match(matches: Mapping[ReplicaId, Match], up: Sequence[Replica]) -> tuple[ReplicaId, int] | None:
    """The replica with the longest match and its tokens; the most recent among equals, then the first that joined."""
    known = [(replica.id, matches[replica.id]) for replica in up if replica.id in matches]
    if not known:
        return None
    replica, match = max(known, key=lambda pair: (pair[1].tokens, pair[1].at))
    return replica, match.tokens


class TreeRouter:
    """SGLang's: imbalanced -> least loaded; else the best match above the threshold; else least loaded."""

    def __init__(self, imbalances: Sequence[Imbalance], match_rate_min: float) -> None:
        self._imbalances = tuple(imbalances)
        self._match_rate_min = match_rate_min
        self._lines = PrefixLines()

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:
        up = view.eligible_replicas(session)
        if any(imbalance.holds(view, up) for imbalance in self._imbalances):
            return least_loaded(up).id
        best = longest_match(self._lines.matches(session, turn.prompt_tokens, at), up)
        if best is not None and best[1] > self._match_rate_min * turn.prompt_tokens:
            return best[0]
        return least_loaded(up).id

    def observe(self, view: View, fact: Fact) -> None:
        self._lines.observe(view, fact)


class SessionThenTreeRouter:
    """vLLM's: imbalanced -> least loaded; else where the session was sent last; else as the tree says."""

    def __init__(
        self, imbalance: Imbalance, match_rate_min: float, session_ttl_seconds: float = 3600.0
    ) -> None:
        self._imbalance = imbalance
        self._session_ttl_seconds = session_ttl_seconds
        self._tree = TreeRouter((), match_rate_min)
        self._last_sent: dict[SessionId, tuple[ReplicaId, float]] = {}

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:
        up = view.eligible_replicas(session)
        if self._imbalance.holds(view, up):
            return least_loaded(up).id
        known, sent_at = self._last_sent.get(session.id, (None, at))
        if known is not None and at - sent_at <= self._session_ttl_seconds:
            for replica in up:
                if replica.id == known:
                    return known
        return self._tree.choose(view, session, turn, at)

    def observe(self, view: View, fact: Fact) -> None:
        self._tree.observe(view, fact)
        match fact:
            case TurnDispatched():
                self._last_sent[fact.session] = (fact.replica, fact.at)
            case SessionClosed():
                self._last_sent.pop(fact.session, None)
