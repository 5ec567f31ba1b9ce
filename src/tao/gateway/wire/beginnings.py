"""How a prompt begins, as far as others may begin alike: the pieces that an engine's prefix cache holds once for all.

A piece ends where agents part: after tools and system prompt, and after each of the first two messages (one task tried
several times); a plain-text prompt has no such places and is cut at fixed lengths. What is too short to matter belongs to
the piece after it. Time is passed in. It must not know sessions, replicas or what is booked.
"""

from collections.abc import Iterator

import msgspec

from tao.core.event_values import PrefixNode
from tao.gateway.wire.lenient import JsonObject
from tao.gateway.wire.prefix import PromptChain, digest
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.tables import RecentTable

PIECES_MAX = 65_536
PIECE_BYTES_MIN = 256
"""About 64 tokens: four blocks of an engine, of which it shares whole ones only."""

_MESSAGES_MAX = 2
# A text that grows by any amount keeps these, so the ends of the pieces of two texts that begin alike are the same.
_TEXT_BLOCKS = (4, 16, 64)
# System prompts and schemas take 4 to 4.5 bytes a token, code and tool output fewer, and those make the ratio of a long
# conversation. A piece that is taken for too long would be missing once for each session that begins with it.
_BYTES_PER_TOKEN_MIN = 4.5
# What keeps the caches of two requests apart (vLLM: cache_salt, SGLang: also extra_key and adapters), or is written before
# the conversation by a chat template. Nobody's API key is among them: engines share across their clients.
_APART_KEYS = (
    "cache_salt", "chat_template", "chat_template_kwargs", "documents", "extra_key", "lora_path", "reasoning",
    "reasoning_effort",
)  # fmt: skip
_APART = frozenset(_APART_KEYS)
_ENCODE = msgspec.json.Encoder().encode


class Beginnings:
    """Names the pieces that prompts begin with. Bounded: the piece unused for longest is forgotten first.

    The tokens of a piece are estimated when it is first seen, and stay. The estimate would be better after the first turn
    that the engine has counted, but two sessions share a piece only if both name the same tokens: fixed beats exact.
    """

    def __init__(self, *, pieces_max: int = PIECES_MAX, idle_seconds: float = 3600.0) -> None:
        self._tokens: RecentTable[int] = RecentTable(pieces_max, idle_seconds)

    def nodes(
        self,
        request: ParsedRequest,
        chain: PromptChain | None,
        *,
        bytes_per_token: float,
        prompt_tokens: int,
        now: float,
    ) -> tuple[PrefixNode, ...]:
        """How the prompt of `request` begins, root first, never more in all than `prompt_tokens`; empty where that is not
        known. `bytes_per_token`: what the estimate goes by where a piece is new. `now`: seconds, monotonic.
        """
        if chain is None or request.continues_stored:
            return ()
        nodes: list[PrefixNode] = []
        left_tokens = prompt_tokens
        for key, piece_bytes in _pieces(request.body, chain):
            tokens = self._tokens.use(key, now)
            if tokens is None:
                tokens = int(piece_bytes / max(bytes_per_token, _BYTES_PER_TOKEN_MIN))
                self._tokens.put(key, tokens, now)
            left_tokens -= tokens
            if left_tokens < 0:
                break
            nodes.append(PrefixNode(key, tokens))
        return tuple(nodes)

    def expire(self, now: float) -> int:
        """Drop idle pieces; how many."""
        return self._tokens.expire(now)


def _pieces(body: JsonObject, chain: PromptChain) -> Iterator[tuple[str, int]]:
    """The key of each piece, which covers all up to its end, and the bytes of the piece alone."""
    try:
        apart = b"" if _APART.isdisjoint(body) else _ENCODE([body.get(key) for key in _APART_KEYS])
    except RecursionError:  # nested just shallowly enough to be read, not to be written again
        return
    begun_bytes = 0
    for mark, end_bytes in _ends(chain):
        if end_bytes - begun_bytes >= PIECE_BYTES_MIN:
            yield digest(apart, b"\0", chain.root, mark).hex(), end_bytes - begun_bytes
            begun_bytes = end_bytes


def _ends(chain: PromptChain) -> Iterator[tuple[bytes, int]]:
    """Where a piece may end: the digest up to there and the bytes."""
    yield b"", chain.root_bytes
    if chain.text:
        counts = [blocks for blocks in _TEXT_BLOCKS if blocks <= len(chain.digests)]
    else:
        # What the model wrote is of this session alone.
        given = chain.replied - 1 if chain.replied else len(chain.digests)
        counts = list(range(1, min(given, _MESSAGES_MAX) + 1))
    for count in counts:
        yield chain.digests[count - 1], chain.sizes[count - 1]
