"""What events carry: the kind of a turn, tool calls, token counts, shared prefixes, what a client says of urgency.

An ill-formed value is refused when it is made (`EventError`), as an event is. It must not know who is told of what.
"""

from enum import StrEnum
from math import isfinite
from typing import NamedTuple

from tao.values import value


class EventError(ValueError):
    """An event that cannot describe anything that happened, for instance one with negative tokens."""


class TurnKind(StrEnum):
    """How the prompt of a turn relates to the main line of its session."""

    MAIN = "main"  # extends the main line (or starts it)
    RESET = "reset"  # starts the main line afresh: compaction, an edited history
    SIDE = "side"  # same session id, another prefix: a title request, an auxiliary request


@value
class ToolCall:
    """One tool that a turn asked for, as far as the response told. Names only, never arguments."""

    name: str
    command_head: str = ""
    sleep_seconds: float | None = None
    timeout_seconds: float | None = None
    background: bool = False

    def __post_init__(self) -> None:
        for name, seconds in (("sleep", self.sleep_seconds), ("timeout", self.timeout_seconds)):
            if seconds is not None and not (isfinite(seconds) and seconds >= 0):
                raise EventError(f"tool {self.name}: {name}_seconds must be finite and >= 0, not {seconds!r}")


@value
class Usage:
    """Token counts of a finished turn. `cached_tokens` is None where the engine does not tell."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens < 0 or self.output_tokens < 0 or (self.cached_tokens or 0) < 0:
            raise EventError(f"negative token count in {self!r}")


class PrefixNode(NamedTuple):
    """One piece of a prompt that other sessions may begin with as well: tools, system prompt, a group's first message.

    `key` stands for the text up to and with this piece, `tokens` is the length of the piece alone. Two nodes are the same
    only if both are equal, so that a length estimated differently is never taken for the same text.
    """

    key: str
    tokens: int


@value
class Urgency:
    """What a client says of how urgent its request is; nobody has to believe it.

    `priority`: the larger the sooner. `deadline_at`: on the events' clock. `output_tokens`: how long an answer it expects.
    """

    priority: int = 0
    deadline_at: float | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.deadline_at is not None and not isfinite(self.deadline_at):
            raise EventError(f"deadline_at must be finite, not {self.deadline_at!r}")
