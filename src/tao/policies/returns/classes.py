"""Which class an absence belongs to, and the keys under which its history is kept, from general to particular.

A class is the tool, the head of its command and how long it was allowed to take; a literal sleep, a background call and a
wait for a human are kinds of their own. Keys are short whatever the client sends: a name too long becomes its digest.
"""

from bisect import bisect_left
from hashlib import blake2b
from typing import Literal, NamedTuple

from tao.core.events import ToolCall
from tao.policies.returns.port import HUMAN

NAME_CHARS_MAX = 40
TIMEOUT_CLASS_SECONDS = (15.0, 60.0, 150.0, 400.0)
"""Who declares a long time-out expects a long run: in recorded traces it tells as much as the command's head."""


Kind = Literal["run", "after-sleep", "background", "human"]
"""What the duration of a class measures; `after-sleep`: what follows the literal sleep."""


class CallClass(NamedTuple):
    """`key`: the class alone. `delay_seconds`: a literal sleep before what the history tells of, and `limit_seconds` how
    long that may take before the tool's own time-out ends it.
    """

    kind: Kind
    tool: str
    key: tuple[str, ...]
    delay_seconds: float = 0.0
    limit_seconds: float | None = None


HUMAN_CLASS = CallClass("human", HUMAN, ("human", HUMAN))


def class_of(tool: ToolCall) -> CallClass:
    """The class of one tool call."""
    name, head = short_name(tool.name), short_name(tool.command_head)
    if tool.background:
        return CallClass("background", name, ("background", name, head))
    limit_seconds = tool.timeout_seconds
    if tool.sleep_seconds is not None:
        delay_seconds = (
            tool.sleep_seconds if limit_seconds is None else min(tool.sleep_seconds, limit_seconds)
        )
        rest_seconds = None if limit_seconds is None else limit_seconds - delay_seconds
        return CallClass("after-sleep", name, ("after-sleep", name, head), delay_seconds, rest_seconds)
    key = ("run", name, head, _timeout_class(limit_seconds))
    return CallClass("run", name, key, limit_seconds=limit_seconds)


def short_name(name: str) -> str:
    """The name itself, or 32 hex digits of its digest where it is long or not ASCII: keys are bounded in bytes."""
    if len(name) <= NAME_CHARS_MAX and name.isascii():
        return name
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _timeout_class(timeout_seconds: float | None) -> str:
    if timeout_seconds is None:
        return ""
    return "abcde"[bisect_left(TIMEOUT_CLASS_SECONDS, timeout_seconds)]
