"""TraceLab's round traces: one model request a line, with its timing events and tools.

Rounds of a session are in file order. Ids are hashed and of tools and commands only known names are kept: a
trace that was not sanitised may still hold inputs. It must not know other formats.
"""

import msgspec
from msgspec import Struct, field

from tao.traces.anonymise import hashed_id
from tao.traces.model import Tokens, TraceSession
from tao.traces.readers.raw import ABSENT, is_object
from tao.traces.readers.recorded import RecordedCall, RecordedTurn, iso_seconds, trace_turns
from tao.traces.readers.rows import RowReader

INPUT_EVENTS = frozenset({"user_message", "tool_result"})
OUTPUT_EVENTS = frozenset({"reasoning", "text", "tool_call"})
AGENTS = {"claude": "claude-code", "codex": "codex"}
MILLISECONDS = 1000.0


class _Event(Struct):
    event_type: str = ""
    timestamp: str | None = None


class _Tool(Struct):
    tool_name: str = ""
    emitted_at: str | None = None
    result_at: str | None = None
    input: msgspec.Raw = ABSENT
    result_chars: int | None = None
    tool_internal_latency_ms: float | None = None
    is_error: bool | None = None


class _Input(Struct):
    command: object = None
    cmd: object = None


class _Round(Struct):
    session_id: str
    input_tokens_total: Tokens
    output_tokens: Tokens | None = None
    provider: str = ""
    model: str | None = None
    prefix_tokens: Tokens | None = None
    reasoning_output_tokens: Tokens | None = None
    timing_events: list[_Event] = field(default_factory=list)
    tools: list[_Tool] = field(default_factory=list)


def tracelab_reader() -> RowReader[_Round]:
    return RowReader(_Round, _Fold)


class _Fold:
    def __init__(self, name: str) -> None:
        self._name = name
        self._agent = ""
        self._model = ""
        self._turns: list[RecordedTurn] = []

    def add(self, row: _Round) -> None:
        inputs = [(iso_seconds(e.timestamp), e) for e in row.timing_events if e.event_type in INPUT_EVENTS]
        outputs = [iso_seconds(e.timestamp) for e in row.timing_events if e.event_type in OUTPUT_EVENTS]
        calls = [_call(tool) for tool in row.tools]
        if not row.input_tokens_total:
            return  # a round whose usage was not logged
        self._agent = AGENTS.get(row.provider, row.provider)
        self._model = row.model or self._model
        self._turns.append(
            RecordedTurn(
                prompt_tokens=row.input_tokens_total,
                output_tokens=row.output_tokens or 0,
                cached_tokens=row.prefix_tokens,
                reasoning_tokens=row.reasoning_output_tokens,
                input_at=max((at for at, _ in inputs if at is not None), default=None),
                ended_at=max((at for at in outputs if at is not None), default=None),
                human_input=any(event.event_type == "user_message" for _, event in inputs),
                calls=calls,
            )
        )

    def session(self) -> TraceSession | None:
        if not self._turns:
            return None
        return TraceSession(
            session_id=hashed_id("tracelab", self._name),
            agent=self._agent,
            model=self._model,
            tokens="measured",
            turns=trace_turns(self._turns),
        )


def _call(tool: _Tool) -> RecordedCall:
    command = None
    if is_object(tool.input):
        given = msgspec.json.decode(tool.input, type=_Input)
        command = next((text for text in (given.command, given.cmd) if isinstance(text, str)), None)
    call = RecordedCall.of(tool.tool_name, command, iso_seconds(tool.emitted_at))
    call.result_at = iso_seconds(tool.result_at)
    call.result_chars = tool.result_chars
    call.is_error = tool.is_error is True
    if tool.tool_internal_latency_ms is not None and tool.tool_internal_latency_ms >= 0:
        call.wall_seconds = tool.tool_internal_latency_ms / MILLISECONDS
    return call
