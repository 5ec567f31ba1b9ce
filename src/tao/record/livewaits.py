"""From a turn that a driver saw end, and the moment in which its session was back, to a turn of a trace.

The wait belongs to the tools that the turn asked for, else to a human. It must not know sessions or events.
"""

from dataclasses import dataclass, field

from tao.core.events import ToolCall
from tao.traces.anonymise import known_head, tool_name
from tao.traces.model import SECONDS_MAX, TOKENS_MAX, TraceTool, TraceTurn

TOOLS_MAX = 64


@dataclass(slots=True)
class EndedTurn:
    """A turn that has ended. `started_at`: when it was sent to a replica; times in seconds on one clock.

    `measured`: (tool, seconds) as the client told of its calls. `is_estimate`: the engine told no counts.
    """

    at: float
    started_at: float
    first_token_at: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    is_estimate: bool
    prefix_reset: bool
    tools: list[ToolCall]
    measured: list[tuple[str, float]] = field(default_factory=list)


def trace_turn(turn: EndedTurn, returned_at: float | None) -> TraceTurn:
    """The turn with the wait after it; None: the session did not come back, and nothing is known of its tools."""
    wait_seconds = None if returned_at is None else _seconds(returned_at - turn.at)
    phase, calls = _phase(turn, wait_seconds) if wait_seconds is not None else (None, ())
    first = turn.first_token_at
    return TraceTurn(
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
        cached_tokens=None if turn.cached_tokens is None else min(turn.cached_tokens, TOKENS_MAX),
        llm_seconds=_seconds(turn.at - turn.started_at),
        ttft_seconds=None if first is None else _seconds(first - turn.started_at),
        stop="tool_use" if turn.tools else "end_turn",
        tool=phase,
        tools=calls,
        user_gap_seconds=None if phase is not None else wait_seconds,
        prompt_is_estimate=turn.is_estimate,
        output_is_estimate=turn.is_estimate,
        prefix_reset=turn.prefix_reset,
    )


def _phase(turn: EndedTurn, wait_seconds: float) -> tuple[TraceTool | None, tuple[TraceTool, ...]]:
    """The tools' phase, and its calls where there are several: the phase is named after the longest."""
    tools = turn.tools[:TOOLS_MAX]
    if not tools:
        return None, ()
    if len(tools) == 1:
        return _trace_tool(tools[0], wait_seconds), ()
    left = list(turn.measured)
    calls = [_parallel_call(tool, left, wait_seconds) for tool in tools]
    longest = max(range(len(calls)), key=lambda index: calls[index].duration_seconds)
    phase = _trace_tool(tools[longest], wait_seconds, parallel=len(turn.tools))
    return phase, tuple(calls)


def _parallel_call(tool: ToolCall, left: list[tuple[str, float]], wait_seconds: float) -> TraceTool:
    """One of several, as long as measured, else as long as all of them together."""
    for index, (name, seconds) in enumerate(left):
        if name == tool.name:
            del left[index]
            return _trace_tool(tool, _seconds(seconds))
    return _trace_tool(tool, wait_seconds, is_estimate=True)


def _trace_tool(
    tool: ToolCall, seconds: float, *, parallel: int | None = None, is_estimate: bool = False
) -> TraceTool:
    return TraceTool(
        name=tool_name(tool.name),
        duration_seconds=seconds,
        command_head=known_head(tool.command_head),
        sleep_seconds=tool.sleep_seconds,
        declared_timeout_seconds=tool.timeout_seconds,
        background=tool.background,
        parallel=parallel,
        duration_is_estimate=is_estimate,
    )


def _seconds(value: float) -> float:
    return min(max(round(value, 3), 0.0), SECONDS_MAX)
