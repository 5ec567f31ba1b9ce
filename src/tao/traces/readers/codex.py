"""Codex CLI's rollouts: JSON lines `{timestamp, type, payload}`, one session a file.

A turn is what lies between two `token_count` events; that event carries its usage and may repeat. Read with
everything private dropped at once, as for Claude Code. It must not know other formats.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tao.traces.anonymise import hashed_id
from tao.traces.errors import BadLine, OnBadLine
from tao.traces.lines import numbered_lines
from tao.traces.model import Tokens, TraceSession
from tao.traces.readers.raw import ABSENT, is_object
from tao.traces.readers.recorded import RecordedCall, RecordedTurn, iso_seconds, trace_turns

MILLISECONDS = 1000.0
_WALL_TIME = re.compile(r"Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds")
_EXIT_CODE = re.compile(r"[Ee]xit(?:ed with)? code:? (\d{1,5})")
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class _Line(Struct):
    type: str
    timestamp: str | None = None
    payload: msgspec.Raw = ABSENT


class _Usage(Struct):
    input_tokens: Tokens = 0
    cached_input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    reasoning_output_tokens: Tokens = 0


class _Info(Struct):
    last_token_usage: _Usage | None = None
    total_token_usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    info: _Info | None = None


class _Item(Struct):
    type: str = ""
    role: str | None = None
    name: str = ""
    call_id: str | None = None
    arguments: object = None
    action: object = None
    output: object = None


class _Meta(Struct):
    id: str | None = None
    source: object = None


class _Context(Struct):
    model: str | None = None


class CodexReader:
    """One session a file; a sub-agent is linked to its parent when the parent's file was read before."""

    def __init__(self) -> None:
        self._ended_at: dict[str, list[float]] = {}

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        decoder = msgspec.json.Decoder(_Line)
        rollout = _Rollout(path.name)
        for number, line in numbered_lines(path):
            try:
                rollout.add(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
                on_bad_line(BadLine(str(path), number, f"not a line of a Codex rollout: {error}"))
        parent = None
        if rollout.parent_thread is not None and rollout.started_at is not None:
            ends = self._ended_at.get(rollout.parent_thread, [])
            turn = bisect_right(ends, rollout.started_at) - 1
            parent = (hashed_id("codex", rollout.parent_thread), turn) if turn >= 0 else None
        self._ended_at[rollout.thread] = rollout.ends()
        session = rollout.session(parent)
        if session is not None:
            yield 1, session


class _Rollout:
    """One session under construction."""

    def __init__(self, name: str) -> None:
        self.thread = name
        self.parent_thread: str | None = None
        self.started_at: float | None = None
        self._model = ""
        self._turns: list[RecordedTurn] = []
        self._open = RecordedTurn()
        self._call_of_id: dict[str, RecordedCall] = {}
        self._total: _Usage | None = None
        self._input_at: float | None = None
        self._human_input = False
        self._prefix_reset = False

    def add(self, line: _Line) -> None:
        at = iso_seconds(line.timestamp)
        if self.started_at is None:
            self.started_at = at
        if line.type == "compacted":
            self._prefix_reset = True
        if not is_object(line.payload):
            return
        if line.type == "session_meta":
            self._meta(msgspec.json.decode(line.payload, type=_Meta))
        elif line.type == "turn_context":
            self._model = msgspec.json.decode(line.payload, type=_Context).model or self._model
        elif line.type == "response_item":
            self._item(msgspec.json.decode(line.payload, type=_Item), at)
        elif line.type == "event_msg":
            self._event(msgspec.json.decode(line.payload, type=_Event), at)

    def _meta(self, meta: _Meta) -> None:
        self.thread = meta.id or self.thread
        self.parent_thread = _find(meta.source, ("subagent", "thread_spawn", "parent_thread_id"))

    def _item(self, item: _Item, at: float | None) -> None:
        if item.type in _RESULTS:
            self._result(item, at)
            return
        if item.type == "message" and item.role != "assistant":
            return
        if self._open.ended_at is None and not self._open.calls:
            self._open.input_at = self._input_at
            self._open.human_input, self._human_input = self._human_input, False
        self._open.ended_at = at if at is not None else self._open.ended_at
        if item.type in _CALLS:
            call = _call(item, at)
            self._open.calls.append(call)
            if item.call_id:
                self._call_of_id[item.call_id] = call

    def _result(self, item: _Item, at: float | None) -> None:
        self._input_at = at if at is not None else self._input_at
        call = self._call_of_id.get(item.call_id or "")
        if call is None:
            return
        output = item.output if isinstance(item.output, str) else msgspec.json.encode(item.output).decode()
        call.result_at = at
        call.result_chars = len(output)
        wall = _WALL_TIME.search(output[:2000])
        call.wall_seconds = float(wall[1]) if wall is not None else None
        code = _EXIT_CODE.search(output[:2000])
        call.is_error = code is not None and code[1] != "0"

    def _event(self, event: _Event, at: float | None) -> None:
        if event.type == "user_message":
            self._human_input = True
            self._input_at = at if at is not None else self._input_at
        if event.type != "token_count" or event.info is None or event.info.last_token_usage is None:
            return
        if event.info.total_token_usage is not None and event.info.total_token_usage == self._total:
            return  # the same usage again, sent for its rate limits
        self._total = event.info.total_token_usage
        self._close(event.info.last_token_usage, at)

    def _close(self, usage: _Usage, at: float | None) -> None:
        turn, self._open = self._open, RecordedTurn()
        if not usage.input_tokens:
            return
        turn.prompt_tokens = usage.input_tokens
        turn.cached_tokens = usage.cached_input_tokens
        turn.output_tokens = usage.output_tokens
        turn.reasoning_tokens = usage.reasoning_output_tokens
        turn.ended_at = turn.ended_at if turn.ended_at is not None else at
        turn.prefix_reset, self._prefix_reset = self._prefix_reset, False
        self._turns.append(turn)

    def ends(self) -> list[float]:
        """When each turn ended, never decreasing."""
        ends: list[float] = []
        for turn in self._turns:
            ends.append(max(turn.ended_at or 0.0, ends[-1] if ends else 0.0))
        return ends

    def session(self, parent: tuple[str, int] | None) -> TraceSession | None:
        if not self._turns:
            return None
        return TraceSession(
            session_id=hashed_id("codex", self.thread),
            agent="codex",
            model=self._model,
            tokens="measured",
            parent=parent[0] if parent is not None else None,
            parent_turn=parent[1] if parent is not None else None,
            turns=trace_turns(self._turns),
        )


def _call(item: _Item, at: float | None) -> RecordedCall:
    given = item.arguments if item.arguments is not None else item.action
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError:
            given = None
    given = given if isinstance(given, dict) else {}
    name = item.name or item.type.removesuffix("_call")
    call = RecordedCall.of(name, _command(given), at)
    for key in ("yield_time_ms", "timeout_ms"):
        limit = given.get(key)
        if isinstance(limit, int | float) and 0 <= limit < 1e9:
            call.declared_timeout_seconds = limit / MILLISECONDS
            break
    return call


def _command(given: dict[str, object]) -> str | None:
    command = given.get("cmd", given.get("command"))
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        # `bash -lc '<command>'` is how Codex runs a line of shell
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return command if isinstance(command, str) else None


def _find(value: object, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value if isinstance(value, str) and value else None
