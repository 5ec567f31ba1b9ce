"""llm-d's default scheduling profile: a weighted sum of scorers, each 0 to 1, highest wins.

Its scorers read the engines' gauges; here queue and usage are worked out from what was sent.
"""

from collections.abc import Mapping

from tao.core.facts import Fact, TurnDispatched
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Replica, Session, Turn
from tao.policies.baselines.cache_aware import kv_usage
from tao.policies.baselines.in_flight import InFlight
from tao.policies.baselines.prefix_lines import PrefixLines


class WeightedScorers:
    """`prefix_weight * matched share + queue_weight * (max - q) / (max - min) + usage_weight * (1 - KV usage)`.

    The queue term is 1 everywhere when all queues are equal. Equal scores go to the replica that joined first.
    """

    def __init__(
        self, prefix_weight: float = 3.0, queue_weight: float = 2.0, usage_weight: float = 2.0
    ) -> None:
        self._prefix_weight = prefix_weight
        self._queue_weight = queue_weight
        self._usage_weight = usage_weight
        self._lines = PrefixLines()
        self._in_flight = InFlight()

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:
        scores = self.scores(view, session, turn, at)
        return max(scores, key=lambda replica: scores[replica])

    def scores(self, view: View, session: Session, turn: Turn, at: float) -> Mapping[ReplicaId, float]:
        """The score of every replica that serves it, in the order in which they joined."""
        up = view.eligible_replicas(session)
        matches = self._lines.matches(session, turn.prompt_tokens, at)
        queues = {replica.id: self._in_flight.queued_turns(view, replica) for replica in up}
        longest, shortest = max(queues.values()), min(queues.values())

        def score(replica: Replica) -> float:
            match = matches.get(replica.id)
            matched = match.tokens / turn.prompt_tokens if match is not None and turn.prompt_tokens else 0.0
            calm = 1.0 if longest == shortest else (longest - queues[replica.id]) / (longest - shortest)
            return (
                self._prefix_weight * matched
                + self._queue_weight * calm
                + self._usage_weight * (1.0 - kv_usage(view, replica))
            )

        return {replica.id: score(replica) for replica in up}

    def observe(self, view: View, fact: Fact) -> None:
        if isinstance(fact, TurnDispatched):
            self._in_flight.sent(fact, cached_tokens=0)
        self._in_flight.observe(fact)
        self._lines.observe(view, fact)
