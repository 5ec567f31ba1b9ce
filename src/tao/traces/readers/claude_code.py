"""Claude Code's session logs: JSON lines, one session a file, sub-agents in it or in files of their own.

An answer is spread over several records with one `message.id`, each with the usage so far; tool results are
user records. Read with everything private dropped at once: ids are hashed, of texts only lengths are taken,
of tools the built-in names, of commands the first word. It must not know other formats.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tao.traces.anonymise import hashed_id
from tao.traces.errors import BadLine, OnBadLine
from tao.traces.lines import numbered_lines
from tao.traces.model import Tokens, TraceSession
from tao.traces.readers.raw import ABSENT, is_object, is_present
from tao.traces.readers.recorded import RecordedCall, RecordedTurn, iso_seconds, trace_turns

SYNTHETIC = "<synthetic>"
SPAWNING_TOOLS = frozenset({"Task", "Agent"})
MILLISECONDS = 1000.0


class _Usage(Struct):
    input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None


class _Input(Struct):
    command: object = None
    timeout: object = None
    run_in_background: object = None


class _Block(Struct):
    type: str = ""
    id: str | None = None
    name: str = ""
    input: msgspec.Raw = ABSENT
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: msgspec.Raw = ABSENT


class _Message(Struct):
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    content: str | list[_Block] | None = None


class _Record(Struct, rename={"session_id": "sessionId", "agent_id": "agentId"}):
    type: str = ""
    subtype: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    isSidechain: bool = False  # noqa: N815 - the log's own name
    isMeta: bool = False  # noqa: N815
    isCompactSummary: bool = False  # noqa: N815
    timestamp: str | None = None
    message: msgspec.Raw = ABSENT
    toolUseResult: msgspec.Raw = ABSENT  # noqa: N815


class _ToolUseResult(Struct, rename={"agent_id": "agentId"}):
    agent_id: str | None = None


LaneKey = tuple[str, str]
"""(session id, agent id), both raw; the agent id of the main line is empty."""


class ClaudeCodeReader:
    """Sessions of a file, main line first; remembers which turn started which agent, for agents' own files."""

    def __init__(self) -> None:
        self._spawns: dict[LaneKey, tuple[str, int]] = {}

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        decoder = msgspec.json.Decoder(_Record)
        lanes: dict[LaneKey, _Lane] = {}
        for number, line in numbered_lines(path):
            try:
                record = decoder.decode(line)
                if record.type in ("assistant", "user", "system"):
                    key = _lane_key(record, path)
                    lanes.setdefault(key, _Lane(key, number)).add(record)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
                on_bad_line(BadLine(str(path), number, f"not a record of Claude Code: {error}"))
        for key in sorted(lanes, key=lambda key: (bool(key[1]), lanes[key].first_line)):
            lane = lanes[key]
            self._spawns.update(lane.spawns())
            session = lane.session(self._parent(key, lanes))
            if session is not None:
                yield lane.first_line, session

    def _parent(self, key: LaneKey, lanes: dict[LaneKey, "_Lane"]) -> tuple[str, int] | None:
        if not key[1]:
            return None
        known = self._spawns.get(key)
        if known is not None:
            return known
        main = lanes.get((key[0], ""))
        return main.turn_spawning_at(lanes[key].started_at) if main is not None else None


def _lane_key(record: _Record, path: Path) -> LaneKey:
    session_id = record.session_id or path.stem
    if record.agent_id:
        return session_id, record.agent_id
    return session_id, "sidechain" if record.isSidechain else ""


class _Lane:
    """One line of conversation under construction."""

    def __init__(self, key: LaneKey, first_line: int) -> None:
        self.first_line = first_line
        self.started_at: float | None = None
        self._session_id = hashed_id("claude", *key) if key[1] else hashed_id("claude", key[0])
        self._raw_session_id = key[0]
        self._model = ""
        self._turns: list[RecordedTurn] = []
        self._turn_of_message: dict[str, RecordedTurn] = {}
        self._call_of_id: dict[str, tuple[int, RecordedCall]] = {}
        self._spawned: dict[LaneKey, tuple[str, int]] = {}
        self._input_at: float | None = None
        self._human_input = False
        self._prefix_reset = False

    def add(self, record: _Record) -> None:
        at = iso_seconds(record.timestamp)
        if record.type == "system" or record.isCompactSummary:
            self._prefix_reset |= record.isCompactSummary or record.subtype == "compact_boundary"
            return
        if not is_present(record.message):
            return
        message = msgspec.json.decode(record.message, type=_Message)
        if self.started_at is None:
            self.started_at = at
        if record.type == "assistant":
            self._answer(message, at)
        else:
            self._input(record, message, at)

    def _answer(self, message: _Message, at: float | None) -> None:
        usage = message.usage
        if usage is None or message.model == SYNTHETIC:
            return
        cached = usage.cache_read_input_tokens or 0
        prompt = (usage.input_tokens or 0) + (usage.cache_creation_input_tokens or 0) + cached
        turn = self._turn_of_message.get(message.id or "")
        if turn is None:
            if not prompt:
                return
            turn = RecordedTurn(
                input_at=self._input_at, human_input=self._human_input, prefix_reset=self._prefix_reset
            )
            self._human_input = self._prefix_reset = False
            self._turns.append(turn)
            if message.id:
                self._turn_of_message[message.id] = turn
        turn.prompt_tokens = max(turn.prompt_tokens, prompt)
        turn.cached_tokens = cached
        turn.output_tokens = max(turn.output_tokens, usage.output_tokens or 0)
        turn.stop = message.stop_reason or turn.stop
        turn.ended_at = at if at is not None else turn.ended_at
        self._model = message.model or self._model
        for block in message.content if isinstance(message.content, list) else ():
            if block.type == "tool_use":
                self._call(turn, block, at)

    def _call(self, turn: RecordedTurn, block: _Block, at: float | None) -> None:
        given = msgspec.json.decode(block.input, type=_Input) if is_object(block.input) else _Input()
        call = RecordedCall.of(block.name, given.command if isinstance(given.command, str) else None, at)
        if isinstance(given.timeout, int | float) and 0 <= given.timeout < 1e9:
            call.declared_timeout_seconds = given.timeout / MILLISECONDS
        call.background = given.run_in_background is True
        turn.calls.append(call)
        if block.id:
            self._call_of_id[block.id] = (len(self._turns) - 1, call)

    def _input(self, record: _Record, message: _Message, at: float | None) -> None:
        blocks = message.content if isinstance(message.content, list) else []
        results = [block for block in blocks if block.type == "tool_result"]
        for block in results:
            index, call = self._call_of_id.get(block.tool_use_id or "", (0, None))
            if call is None:
                continue
            call.result_at = at
            call.is_error = block.is_error is True
            call.result_chars = text_chars(block.content)
            self._note_spawn(record, index)
        if not results and not record.isMeta:
            self._human_input = True
        self._input_at = at if at is not None else self._input_at

    def _note_spawn(self, record: _Record, turn_index: int) -> None:
        if not is_object(record.toolUseResult):
            return
        agent_id = msgspec.json.decode(record.toolUseResult, type=_ToolUseResult).agent_id
        if agent_id:
            self._spawned[self._raw_session_id, agent_id] = (self._session_id, turn_index)

    def spawns(self) -> dict[LaneKey, tuple[str, int]]:
        """The agents whose results came back, with the session and turn that started each."""
        return self._spawned

    def turn_spawning_at(self, at: float | None) -> tuple[str, int] | None:
        """The last turn that had called an agent by then."""
        found = [
            index
            for index, turn in enumerate(self._turns)
            for call in turn.calls
            if call.name in SPAWNING_TOOLS
            and (at is None or call.emitted_at is None or call.emitted_at <= at)
        ]
        return (self._session_id, found[-1]) if found else None

    def session(self, parent: tuple[str, int] | None) -> TraceSession | None:
        if not self._turns:
            return None
        return TraceSession(
            session_id=self._session_id,
            agent="claude-code",
            model=self._model,
            tokens="measured(output may be est)",
            parent=parent[0] if parent is not None else None,
            parent_turn=parent[1] if parent is not None else None,
            turns=trace_turns(self._turns),
        )


def text_chars(content: msgspec.Raw) -> int | None:
    """Characters of a result: of a string, or of the texts in a list of blocks; None without content."""
    if not is_present(content):
        return None
    value = msgspec.json.decode(content)
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list):
        return None
    texts = (block.get("text") for block in value if isinstance(block, dict))
    return sum(len(text) for text in texts if isinstance(text, str))
