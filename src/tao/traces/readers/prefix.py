"""How much of a prompt was in the prompt before it, from the ids of their KV blocks.

Pure. It must not know a format; ids of any block size will do.
"""

from collections.abc import Sequence

RESET_SHARE = 0.5
"""A prompt that keeps less than this share of the prompt before it starts a new prefix."""


class BlockHistory:
    """Follows the block ids of one chain of prompts."""

    def __init__(self) -> None:
        self._previous: Sequence[int] = ()

    def step(self, ids: Sequence[int], prompt_tokens: int) -> tuple[int, bool]:
        """(tokens of this prompt that the one before it had computed, whether it starts a new prefix)."""
        previous, self._previous = self._previous, ids
        if not previous or not ids:
            return 0, False
        common = _common_length(previous, ids)
        # The last block may have been a partial one, whose id changes as it fills.
        return prompt_tokens * common // len(ids), common < RESET_SHARE * (len(previous) - 1)


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length
