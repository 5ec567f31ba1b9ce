"""Token counts where the engine gives none: prompts from their size, outputs from the stream.

The ratio of text bytes to tokens is learned per session from reported usage, with a slower one for all
sessions as the start of new ones. Base64 images are not part of a prompt's text bytes. It must not know
dialects or policies.
"""

from tao.gateway.wire.facts import ResponseFacts
from tao.gateway.wire.tables import RecentTable

BYTES_PER_TOKEN_START = 4.0

_RATIO_MIN, _RATIO_MAX = 0.5, 40.0
_OVERALL_WEIGHT = 0.05
_LEARN_TOKENS_MIN = 16


class TokenEstimator:
    """Learns bytes per token; bounded, oldest sessions forgotten first."""

    def __init__(self, *, sessions_max: int = 65_536, idle_seconds: float = 3600.0) -> None:
        self._ratios: RecentTable[float] = RecentTable(sessions_max, idle_seconds)
        self._overall = BYTES_PER_TOKEN_START

    def bytes_per_token(self, session_id: str) -> float:
        """The ratio in use for `session_id`."""
        ratio = self._ratios.peek(session_id)
        return self._overall if ratio is None else ratio

    def prompt_tokens(self, session_id: str, text_bytes: int) -> int:
        """The estimate for a prompt of `text_bytes`, at least 1."""
        return max(1, round(text_bytes / self.bytes_per_token(session_id)))

    def learn(self, session_id: str, text_bytes: int, prompt_tokens: int, now: float) -> None:
        """Note what the engine counted for a prompt; tiny prompts say little and are left out."""
        if prompt_tokens < _LEARN_TOKENS_MIN or text_bytes <= 0:
            return
        ratio = min(_RATIO_MAX, max(_RATIO_MIN, text_bytes / prompt_tokens))
        self._ratios.put(session_id, ratio, now)
        self._overall += _OVERALL_WEIGHT * (ratio - self._overall)

    def forget(self, session_id: str) -> None:
        """The session has ended."""
        self._ratios.remove(session_id)

    def expire(self, now: float) -> int:
        """Drop idle sessions; how many."""
        return self._ratios.expire(now)


def output_tokens(facts: ResponseFacts, max_tokens: int | None = None) -> int:
    """The output of an answer: reported, else counted. An engine sends at most one piece a token, so pieces
    are a lower bound; the size of the text is the other evidence where several tokens share a piece.
    """
    if facts.usage is not None:
        return facts.usage.output_tokens
    counted = max(facts.output_deltas, round(facts.output_chars / BYTES_PER_TOKEN_START))
    return counted if max_tokens is None else min(counted, max_tokens)
