"""Prompts that no cache has seen: words drawn at random, by a seed, so that two runs never share a prefix.

Lengths are in words; how many tokens a word has is found out from an engine's own count.
"""

from random import Random

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ki", "lo", "mu", "ne", "pa", "ri", "so", "tu", "ve", "wo")


class Prompts:
    """Makes fresh prompts. The seed should differ from run to run: an engine remembers the last one."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - text, no secret

    def fresh(self, words: int) -> str:
        """A text of so many words that differs from every earlier one from its first word on."""
        return " ".join(self._word() for _ in range(max(1, words)))

    def _word(self) -> str:
        return "".join(self._random.choices(_SYLLABLES, k=2))


def completion(model: str, prompt: str, output_tokens: int) -> dict[str, object]:
    """A request for a completion of exactly so many tokens, where the engine knows `ignore_eos`."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
    }
