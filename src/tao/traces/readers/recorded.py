"""From the log of an agent to turns: what a log reader gathers about each model request, and the rule of its
waits.

A turn's tool phase lasts from its last output to the last result; what a human then took until the next
message is the user gap. Times are seconds on any one clock. It must not know a log's format.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tao.traces.anonymise import command_head, sleep_seconds, tool_name
from tao.traces.model import SECONDS_MAX, TraceTool, TraceTurn


@dataclass(slots=True)
class RecordedCall:
    """One tool call of a turn, without its text."""

    name: str
    emitted_at: float | None = None
    result_at: float | None = None
    command_head: str | None = None
    sleep_seconds: float | None = None
    declared_timeout_seconds: float | None = None
    wall_seconds: float | None = None
    background: bool = False
    is_error: bool = False
    result_chars: int | None = None

    @classmethod
    def of(cls, name: str, command: str | None, emitted_at: float | None) -> "RecordedCall":
        """Takes the raw name and command, keeps what may be kept."""
        return cls(
            name=tool_name(name),
            emitted_at=emitted_at,
            command_head=command_head(command) if command is not None else None,
            sleep_seconds=sleep_seconds(command) if command is not None else None,
        )


@dataclass(slots=True)
class RecordedTurn:
    """One model request. `input_at`: when its last input was ready; `ended_at`: its last output."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_at: float | None = None
    ended_at: float | None = None
    stop: str | None = None
    human_input: bool = False
    prefix_reset: bool = False
    calls: list[RecordedCall] = field(default_factory=list)


def trace_turns(recorded: Sequence[RecordedTurn]) -> tuple[TraceTurn, ...]:
    """The turns with the waits between them."""
    return tuple(
        _trace_turn(turn, recorded[index + 1] if index + 1 < len(recorded) else None)
        for index, turn in enumerate(recorded)
    )


def _trace_turn(turn: RecordedTurn, following: RecordedTurn | None) -> TraceTurn:
    done = [call for call in turn.calls if call.result_at is not None]
    phase_end = max((call.result_at for call in done if call.result_at is not None), default=turn.ended_at)
    tool = _phase(turn, done)
    gap = None
    if following is not None and following.human_input:
        gap = _between(phase_end, following.input_at)
    llm_seconds = None
    if turn.input_at is not None and turn.ended_at is not None:
        llm_seconds = _between(turn.input_at, turn.ended_at)
    return TraceTurn(
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
        cached_tokens=turn.cached_tokens,
        reasoning_tokens=turn.reasoning_tokens,
        llm_seconds=llm_seconds,
        stop=turn.stop,
        tool=tool,
        tools=tuple(_call(call, _between(call.emitted_at, call.result_at)) for call in done)
        if len(done) > 1
        else (),
        user_gap_seconds=gap,
        prefix_reset=turn.prefix_reset,
    )


def _phase(turn: RecordedTurn, done: Sequence[RecordedCall]) -> TraceTool | None:
    if not done:
        return None
    last = max(done, key=lambda call: call.result_at or 0.0)
    return _call(last, _between(turn.ended_at, last.result_at), parallel=len(done) if len(done) > 1 else None)


def _call(call: RecordedCall, seconds: float, parallel: int | None = None) -> TraceTool:
    return TraceTool(
        name=call.name,
        duration_seconds=seconds,
        command_head=call.command_head,
        wall_seconds=call.wall_seconds,
        sleep_seconds=call.sleep_seconds,
        declared_timeout_seconds=call.declared_timeout_seconds,
        background=call.background,
        parallel=parallel,
        is_error=call.is_error,
        result_chars=call.result_chars,
    )


def _between(start: float | None, end: float | None) -> float:
    """Seconds from start to end; 0 where one is unknown or the log's clock ran backwards."""
    if start is None or end is None:
        return 0.0
    return min(max(round(end - start, 3), 0.0), SECONDS_MAX)


def iso_seconds(text: str | None) -> float | None:
    """POSIX seconds of an ISO 8601 time, UTC where it names no zone; None for None; raises ValueError."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
