"""Which class an absence belongs to, and the keys under which its history is kept, from general to particular.

A class is the tool, the head of its command and how long it was allowed to take; a literal sleep, a background call and a
wait for a human are kinds of their own. Keys are short whatever the client sends: a name too long becomes its digest.
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from math import inf

from tao.core.events import ToolCall
from tao.policies.returns.port import HUMAN, Absence

NAME_CHARS_MAX = 40
TIMEOUT_CLASS_SECONDS = (15.0, 60.0, 150.0, 400.0)
"""Who declares a long time-out expects a long run: in recorded traces it tells as much as the command's head."""


class Kind(StrEnum):
    """What the duration of a class measures."""

    RUN = "run"
    AFTER_SLEEP = "after-sleep"  # what follows the literal sleep
    BACKGROUND = "background"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class CallClass:
    """`key`: the class alone. `delay_seconds`: a literal sleep before what the history tells of."""

    kind: Kind
    tool: str
    key: tuple[str, ...]
    delay_seconds: float = 0.0


HUMAN_CLASS = CallClass(Kind.HUMAN, HUMAN, (Kind.HUMAN, HUMAN))


def class_of(tool: ToolCall) -> CallClass:
    """The class of one tool call."""
    name, head = short_name(tool.name), short_name(tool.command_head)
    if tool.background:
        return CallClass(Kind.BACKGROUND, name, (Kind.BACKGROUND, name, head))
    if tool.sleep_seconds is not None:
        bound = inf if tool.timeout_seconds is None else tool.timeout_seconds
        delay_seconds = min(tool.sleep_seconds, bound)
        return CallClass(Kind.AFTER_SLEEP, name, (Kind.AFTER_SLEEP, name, head), delay_seconds)
    return CallClass(Kind.RUN, name, (Kind.RUN, name, head, _timeout_class(tool.timeout_seconds)))


def classes_of(absence: Absence) -> list[CallClass]:
    """The distinct classes of an absence, in the order of its tools."""
    if not absence.tools:
        return [HUMAN_CLASS]
    if len(absence.tools) == 1:
        return [class_of(absence.tools[0])]
    return list(dict.fromkeys(class_of(tool) for tool in absence.tools))


def short_name(name: str) -> str:
    """The name itself, or 32 hex digits of its digest where it is long or not ASCII: keys are bounded in bytes."""
    if len(name) <= NAME_CHARS_MAX and name.isascii():
        return name
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _timeout_class(timeout_seconds: float | None) -> str:
    if timeout_seconds is None:
        return ""
    return "abcde"[bisect_left(TIMEOUT_CLASS_SECONDS, timeout_seconds)]
