"""Filler text and its length in tokens: repeatable words, and the learned ratio of characters to tokens.

Pure. It must not know messages, sessions or HTTP.
"""

import random

WORDS = """
the of and to in that it with as for was on are by be this from at or have an not which but all were
when we there can more if no out so said what up about into than them only some could these two may
then do first any now such like our over man me even most made after also did many before must
through years where much your way file class return value test error line function object name list
path code module import string number call change result check data method table index query type
model field default option user request response
"""

POOL_CHARS = 1 << 18


class TextPool:
    """Slices of one long text made from a seed: cheap, repeatable, and alike in characters per token."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"tao-replay-text-{seed}")  # noqa: S311 - repeatable filler, not a secret
        vocabulary = WORDS.split()
        words: list[str] = []
        length = 0
        while length < POOL_CHARS:
            word = rng.choice(vocabulary)
            words.append(word)
            length += len(word) + 1
        self._pool = " ".join(words)[:POOL_CHARS]

    def text(self, chars: int, rng: random.Random) -> str:
        """`chars` characters from a place that `rng` chooses."""
        return self._from(rng.randrange(POOL_CHARS), chars)

    def named(self, name: str, chars: int) -> str:
        """`chars` characters that depend on the name alone: a longer one begins with a shorter one."""
        return self._from(random.Random(name).randrange(POOL_CHARS), chars)  # noqa: S311

    def _from(self, start: int, chars: int) -> str:
        piece = self._pool[start : start + chars]
        while len(piece) < chars:
            piece += self._pool[: chars - len(piece)]
        return piece


class TokenRatio:
    """Characters per token of filler text, learned from prompts whose length the endpoint reported.

    A running mean that weighs new evidence by its characters and forgets slowly. Small additions are ignored:
    in them the tokens of the chat template outweigh the text.
    """

    START = 4.0
    CHARS_MIN = 400
    MEMORY_CHARS = 2_000_000.0

    def __init__(self, fixed: float | None = None) -> None:
        self._fixed = fixed
        self._chars = 0.0
        self._tokens = 0.0

    @property
    def chars_per_token(self) -> float:
        if self._fixed is not None:
            return self._fixed
        return self._chars / self._tokens if self._tokens else self.START

    def chars(self, tokens: int) -> int:
        """Characters of a text that should have `tokens` tokens; at least one."""
        return max(1, round(tokens * self.chars_per_token))

    def observe(self, chars: int, tokens: int) -> None:
        """Learn that `chars` characters had `tokens` tokens; implausible pairs are left out."""
        if chars < self.CHARS_MIN or not 0.1 <= chars / max(tokens, 1) <= 100:
            return
        fade = 1.0 if self._chars < self.MEMORY_CHARS else self.MEMORY_CHARS / (self._chars + chars)
        self._chars = self._chars * fade + chars
        self._tokens = self._tokens * fade + tokens
