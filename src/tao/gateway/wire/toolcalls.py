"""Tool calls as an engine's answer shows them, and what they say about the wait that follows.

`ToolCall` is what a response carried; `ToolObservation` is what TAO may conclude from it: which tool runs,
the head of its command, a literal sleep, a declared time-out, whether it returns at once. Conclusions are
hints, never promises. It must not know dialects (the observers build the calls) nor how durations are
predicted.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tao.gateway.wire import lenient
from tao.gateway.wire.lenient import JsonObject
from tao.traces.shell import read_command

NAME_CHARS_MAX = 128

_COMMAND_KEYS = ("command", "cmd", "script", "code", "commands", "shell_command")
_BACKGROUND_KEYS = ("run_in_background", "is_background", "background")
_MILLISECOND_KEYS = ("timeout_ms", "yield_time_ms", "timeoutMs", "timeout_millis")
_SECOND_KEYS = ("timeout_seconds", "timeout_secs", "timeout_sec", "timeout_s")
# A bare `timeout` is milliseconds in Claude Code and OpenCode, seconds in OpenHands; below this it must be
# seconds.
_BARE_TIMEOUT_MS_MIN = 1000.0
_FENCE_OPEN = re.compile(r"^```(?:mswea_bash_command|bash|sh|shell)[ \t]*\r?\n", re.MULTILINE)
_FENCE_CLOSE = re.compile(r"^```[ \t]*\r?$", re.MULTILINE)
_TEXT_TOOL = "bash"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call an answer asks for; `arguments` is JSON text as the engine wrote it, cut where `truncated`."""

    call_id: str
    name: str
    arguments: str
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ToolObservation:
    """What a tool call says about its duration; None where it says nothing.

    `timeout_seconds` is the bound after which the tool returns in any case (its time-out or yield limit);
    `background` calls return at once.
    """

    name: str
    command_head: str | None = None
    sleep_seconds: float | None = None
    timeout_seconds: float | None = None
    background: bool = False


def observe_tools(calls: Iterable[ToolCall]) -> tuple[ToolObservation, ...]:
    """One observation per call, in order."""
    return tuple(observe_tool(call) for call in calls)


def observe_tool(call: ToolCall) -> ToolObservation:
    """What `call` says; arguments that are no JSON object are read as the command itself."""
    name = call.name[:NAME_CHARS_MAX]
    arguments = lenient.object_or_none(call.arguments.encode("utf-8", "replace"))
    if arguments is None:
        return ToolObservation(name)
    declared = _timeout_seconds(arguments)
    background = any(arguments.get(key) is True for key in _BACKGROUND_KEYS)
    command = _command(arguments)
    if command is None:
        return ToolObservation(name, timeout_seconds=declared, background=background)
    return _from_command(name, command, declared, background=background)


def fenced_tool(text: str) -> ToolObservation | None:
    """The shell block of a text-protocol agent (mini-SWE-agent): the first fenced one, or None.

    Only meaningful where the request declared no tools; otherwise such a block is prose.
    """
    opening = _FENCE_OPEN.search(text)
    closing = _FENCE_CLOSE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return None
    return _from_command(_TEXT_TOOL, text[opening.end() : closing.start()], None, background=False)


def _from_command(name: str, command: str, declared: float | None, *, background: bool) -> ToolObservation:
    timing = read_command(command)
    limits = [limit for limit in (declared, timing.timeout_seconds) if limit is not None]
    limit = min(limits, default=None)
    sleep = timing.sleep_seconds
    if sleep is not None and limit is not None:
        sleep = min(sleep, limit)
    return ToolObservation(name, timing.head, sleep, limit, background or timing.background)


def _command(arguments: JsonObject) -> str | None:
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return value[0] if len(value) == 1 else " ".join(_quoted(word) for word in value)
    return None


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _timeout_seconds(arguments: JsonObject) -> float | None:
    for key in _MILLISECOND_KEYS:
        if (value := lenient.number(arguments, key)) is not None and value > 0:
            return value / 1000
    for key in _SECOND_KEYS:
        if (value := lenient.number(arguments, key)) is not None and value > 0:
            return value
    bare = lenient.number(arguments, "timeout")
    if bare is None or bare <= 0:
        return None
    return bare / 1000 if bare >= _BARE_TIMEOUT_MS_MIN else bare
