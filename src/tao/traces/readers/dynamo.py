"""Dynamo's agentic Mooncake: one request a line, with the requests it waited for and its tool time apart.

`tool_wait_ms`, `delay` and `tool_events` of a row say what happened before it, so they belong to the turn
before. A session whose first row waits for a request of another session is a child of that one. Three passes:
which requests are waited for across sessions, where they are, the sessions. It must not know other formats.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from tao.traces.errors import OnBadLine
from tao.traces.lines import numbered_lines
from tao.traces.model import Tokens, TraceSession, TraceTool, TraceTurn
from tao.traces.readers.prefix import BlockHistory
from tao.traces.readers.rows import RowReader

MILLISECONDS = 1000.0
SUB_AGENT_TOOL = "Task"
TOOL_NAME_CHARS_MAX = 200


class _ToolEvent(Struct):
    tool_class: str = ""
    duration_ms: float | None = None
    status: str | None = None
    output_bytes: int | None = None


class _Row(Struct):
    request_id: str
    input_length: Tokens
    output_length: Tokens
    session_id: str | int | None = None
    timestamp: float | None = None
    delay: float | None = None
    tool_wait_ms: float | None = None
    hash_ids: list[int] | None = None
    prefix_reset: bool | None = None
    wait_for: list[str] = field(default_factory=list)
    tool_events: list[_ToolEvent] = field(default_factory=list)


class _Link(Struct):
    request_id: str | None = None
    session_id: str | int | None = None
    wait_for: list[str] = field(default_factory=list)


Places = dict[str, tuple[str, int]]
"""Request id -> (session, turn)."""


class DynamoReader:
    """Sessions in the order in which they end in the file."""

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        places = _places_waited_for(path)
        reader = RowReader(_Row, lambda name: _Fold(name, places))
        yield from reader.read(path, on_bad_line)


class _Fold:
    def __init__(self, name: str, places: Places) -> None:
        self._name = name
        self._places = places
        self._turns: list[TraceTurn] = []
        self._blocks = BlockHistory()
        self._started_at = 0.0
        self._parent: tuple[str, int] | None = None

    def add(self, row: _Row) -> None:
        cached_tokens, reset = self._blocks.step(row.hash_ids or (), row.input_length)
        if self._turns:
            self._turns[-1] = self._with_wait(self._turns[-1], row)
        else:
            self._started_at = (row.timestamp or 0.0) / MILLISECONDS
            self._parent = self._other_session(row)
        self._turns.append(
            TraceTurn(
                prompt_tokens=row.input_length,
                output_tokens=row.output_length,
                cached_tokens=cached_tokens if row.hash_ids else None,
                prefix_reset=reset or (row.prefix_reset is True and bool(self._turns)),
            )
        )

    def session(self) -> TraceSession | None:
        if not self._turns:
            return None
        return TraceSession(
            session_id=self._name,
            tokens="measured",
            start_offset_seconds=self._started_at,
            parent=self._parent[0] if self._parent is not None else None,
            parent_turn=self._parent[1] if self._parent is not None else None,
            turns=tuple(self._turns),
        )

    def _with_wait(self, before: TraceTurn, row: _Row) -> TraceTurn:
        tools = tuple(_tool(event) for event in row.tool_events)
        seconds = (row.tool_wait_ms or 0.0) / MILLISECONDS
        tool = None
        if tools:
            longest = max(tools, key=lambda one: one.duration_seconds)
            tool = msgspec.structs.replace(longest, duration_seconds=seconds)
        elif self._other_session(row) is not None:
            tool = TraceTool(name=SUB_AGENT_TOOL, duration_seconds=seconds)
        elif row.tool_wait_ms is not None:
            tool = TraceTool(name="unknown", duration_seconds=seconds)
        return msgspec.structs.replace(
            before,
            tool=tool,
            tools=tools if len(tools) > 1 else (),
            user_gap_seconds=row.delay / MILLISECONDS if row.delay else None,
        )

    def _other_session(self, row: _Row) -> tuple[str, int] | None:
        places = (self._places.get(request) for request in row.wait_for)
        return next((place for place in places if place is not None and place[0] != self._name), None)


def _tool(event: _ToolEvent) -> TraceTool:
    return TraceTool(
        name=event.tool_class[:TOOL_NAME_CHARS_MAX] or "unknown",
        duration_seconds=max(event.duration_ms or 0.0, 0.0) / MILLISECONDS,
        is_error=event.status is not None and event.status not in ("", "ok", "succeeded", "success"),
        result_chars=event.output_bytes,
    )


def _places_waited_for(path: Path) -> Places:
    """Where the requests are that rows of other sessions wait for.

    A row waits for the one before it in its own session as a matter of course; that is recognised by
    remembering only the last request of each session, so that memory follows the sessions and the spawns, not
    the rows.
    """
    wanted: dict[str, None] = {}
    last_of: dict[str, str] = {}
    for name, link in _links(path):
        for request in link.wait_for:
            if last_of.get(name) != request:
                wanted[request] = None
        last_of[name] = link.request_id or ""
    places: Places = {}
    turns_of: dict[str, int] = {}
    for name, link in _links(path):
        turn = turns_of.get(name, 0)
        turns_of[name] = turn + 1
        if link.request_id in wanted:
            places[link.request_id] = (name, turn)
    return places


def _links(path: Path) -> Iterator[tuple[str, _Link]]:
    decoder = msgspec.json.Decoder(_Link)
    for number, line in numbered_lines(path):
        try:
            link = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # the pass that reads the sessions names the line
        name = str(link.session_id) if link.session_id not in (None, "") else f"line-{number}"
        yield name, link
