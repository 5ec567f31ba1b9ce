"""Dynamo's KV router: the replica where prefill still to do plus context to decode is least, in KV blocks.

Without KV events, as here, Dynamo predicts residency: what was sent to a replica counts as cached for a while.
"""

from math import ceil

from tao.core.facts import Fact, TurnDispatched
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Session, Turn
from tao.policies.baselines.in_flight import InFlight
from tao.policies.baselines.prefix_lines import PrefixLines


class DynamoKv:
    """`cost = prefill_scale * max(active_prefill + prompt - overlap, 0) + active_decode + prompt`, lowest wins.

    All terms in blocks. Active prefill: prompts in flight without a first token, less what was expected in the cache.
    Active decode: the contexts of all turns in flight. Equal costs go to the replica that joined first.
    """

    def __init__(
        self, block_tokens: int = 16, prefill_scale: float = 1.0, residency_seconds: float = 120.0
    ) -> None:
        self._block_tokens = block_tokens
        self._prefill_scale = prefill_scale
        self._lines = PrefixLines(residency_seconds)
        self._in_flight = InFlight()

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:
        matches = self._lines.matches(session, turn.prompt_tokens, at)
        overlaps = {replica: match.tokens for replica, match in matches.items()}
        up = view.eligible_replicas(session)
        return min(up, key=lambda r: self.cost(view, r.id, turn.prompt_tokens, overlaps.get(r.id, 0))).id

    def cost(self, view: View, replica: ReplicaId, prompt_tokens: int, overlap_tokens: int) -> float:
        """The cost of sending a prompt to the replica, in blocks."""
        prompt_blocks = self._blocks(prompt_tokens)
        prefill_blocks = decode_blocks = 0
        for turn, new_tokens in self._in_flight.turns_on(view, replica):
            decode_blocks += self._blocks(turn.live_tokens)
            if turn.first_token_at is None:
                prefill_blocks += self._blocks(new_tokens)
        overlap_blocks = overlap_tokens // self._block_tokens
        prefill = max(prefill_blocks + prompt_blocks - overlap_blocks, 0)
        return self._prefill_scale * prefill + decode_blocks + prompt_blocks

    def observe(self, view: View, fact: Fact) -> None:
        if isinstance(fact, TurnDispatched):
            session = view.sessions[fact.session]
            match = self._lines.matches(session, fact.prompt_tokens, fact.at).get(fact.replica)
            self._in_flight.sent(fact, 0 if match is None else match.tokens)
        self._in_flight.observe(fact)
        self._lines.observe(view, fact)

    def _blocks(self, tokens: int) -> int:
        return ceil(tokens / self._block_tokens)
