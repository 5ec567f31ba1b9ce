"""The messages of one session: prompts of the recorded length that extend one another byte for byte.

A conversation is a list of encoded messages: an optional system prompt shared with its group, the task, then
answer and tool result by turns. A new prefix (compaction) starts again after the system prompt. Lengths are
corrected from turn to turn by what the endpoint reports. Pure; it must not know HTTP, time, or other
sessions.
"""

import random

import msgspec

from tao.replay.text import TextPool, TokenRatio

SHARED_SHARE_MAX = 0.9
EMPTY_ANSWER = "(no text)"


class SharedPrompts:
    """Texts by (name, tokens) that several sessions send: made once, so that all of them send the same bytes."""

    def __init__(self, pool: TextPool, ratio: TokenRatio) -> None:
        self._pool = pool
        self._ratio = ratio
        self._made: dict[tuple[str, int], str] = {}

    def prompt(self, name: str, tokens: int) -> str:
        key = (name, tokens)
        if key not in self._made:
            self._made[key] = self._pool.named(name, self._ratio.chars(tokens))
        return self._made[key]


class Conversation:
    """Call `extend` before each turn, send `body_messages()`, then call `answered`."""

    def __init__(
        self,
        name: str,
        system: str | None,
        pool: TextPool,
        ratio: TokenRatio,
        seed: int,
        *,
        task: str | None = None,
    ) -> None:
        """`task`: the first message, where other sessions begin with the same; None: it is made up."""
        self._name = name
        self._task = task
        self._pool = pool
        self._ratio = ratio
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311 - repeatable filler, not a secret
        self._system_chars = len(system) if system is not None else 0
        self._system = [_encode("system", system)] if system is not None else []
        self._messages: list[bytes] = []
        self._known_tokens = 0
        self._added_chars = 0
        self._prefixes = 0

    def extend(self, prompt_tokens: int, *, new_prefix: bool) -> None:
        """Make the prompt about `prompt_tokens` long by one more message.

        A prompt that is recorded shorter than what was already said (the recorded agent dropped its
        reasoning) still extends: it becomes a little longer than recorded, and the next one makes up for it.
        """
        if new_prefix or not self._prefixes:
            self._prefixes += 1
            self._messages = list(self._system)
            self._known_tokens = 0
            if self._task is not None and self._prefixes == 1:
                self._added_chars = self._system_chars + len(self._task)
                self._messages.append(_encode("user", self._task))
                return
            head = f"[{self._name}.{self._prefixes}] "
            chars = max(1, self._ratio.chars(prompt_tokens) - self._system_chars - len(head))
            self._added_chars = self._system_chars + len(head) + chars
        else:
            head = ""
            chars = self._ratio.chars(max(1, prompt_tokens - self._known_tokens))
            self._added_chars = chars
        self._messages.append(_encode("user", head + self._pool.text(chars, self._rng)))

    def body_messages(self) -> bytes:
        """The JSON array of all messages."""
        return b"[" + b",".join(self._messages) + b"]"

    def answered(self, text: str, prompt_tokens: int | None, output_tokens: int | None) -> None:
        """Take the answer into the conversation; None where the endpoint did not report a count."""
        self._messages.append(_encode("assistant", text or EMPTY_ANSWER))
        if prompt_tokens is None:
            prompt_tokens = self._known_tokens + round(self._added_chars / self._ratio.chars_per_token)
        else:
            self._ratio.observe(self._added_chars, prompt_tokens - self._known_tokens)
        if output_tokens is None:
            output_tokens = round(len(text) / self._ratio.chars_per_token)
        self._known_tokens = prompt_tokens + output_tokens


def _encode(role: str, content: str) -> bytes:
    return msgspec.json.encode({"role": role, "content": content})
