"""Recorded sessions made small enough for a toy model: the same factor for every token count, another for tool times.

Turns, their order, the growth of prompts and the gaps between turns keep their shape. Pure: the same sessions in, the
same sessions out. It also says beforehand what a run will cost. It must not know processes or engines.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tao.traces import TraceSession, TraceTurn

SOURCE = "gruckion/mini-swe-agent"
"""The bundled sample's SWE-bench sessions: most of it, and the only ones whose prompts begin small."""
PREFILL_TOKENS_PER_SECOND = 600.0
DECODE_TOKENS_PER_SECOND = 80.0
"""Of one `small` replica on one core: measured alone, and at the batch sizes of these runs."""
HIT_RATE_TYPICAL = 0.6
"""About the mean over all routers: round-robin has half of it, the best 0.8 and more."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`peak_tokens`: what the longest prompt with its answer becomes. `turns_max`: sessions are cut after so many."""

    peak_tokens: int
    turns_max: int
    tool_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.peak_tokens < 64 or self.turns_max < 1 or self.tool_factor < 0:
            raise ValueError(f"nothing sensible is left of a session at {self}")


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens of one run. `new_prompt_tokens`: what even an endless cache has to compute."""

    sessions: int
    turns: int
    prompt_tokens: int
    new_prompt_tokens: int
    output_tokens: int
    tool_seconds: float
    peak_tokens: int


def recorded(sessions: Sequence[TraceSession], count: int) -> list[TraceSession]:
    """The first `count` sessions of the source, in the order of the file. ValueError where there are fewer."""
    found = [session for session in sessions if session.source.startswith(SOURCE)][:count]
    if len(found) < count:
        raise ValueError(f"the sample has {len(found)} sessions of {SOURCE}, not {count}")
    return found


def scaled(sessions: Sequence[TraceSession], scale: Scale) -> list[TraceSession]:
    """The sessions cut to their first turns, then all tokens and tool times multiplied."""
    cut = [msgspec.structs.replace(s, turns=s.turns[: scale.turns_max]) for s in sessions]
    peak = max(turn.prompt_tokens + turn.output_tokens for session in cut for turn in session.turns)
    factor = min(1.0, scale.peak_tokens / peak)
    return [
        msgspec.structs.replace(
            session,
            start_offset_seconds=0.0,
            turns=tuple(_scaled(turn, factor, scale.tool_factor) for turn in session.turns),
        )
        for session in cut
    ]


def _scaled(turn: TraceTurn, factor: float, tool_factor: float) -> TraceTurn:
    tool = turn.tool
    if tool is not None:
        tool = msgspec.structs.replace(tool, duration_seconds=tool.duration_seconds * tool_factor)
    return TraceTurn(
        prompt_tokens=max(1, round(turn.prompt_tokens * factor)),
        output_tokens=max(1, round(turn.output_tokens * factor)),
        tool=tool,
        prefix_reset=turn.prefix_reset,
    )


def ordered(sessions: Sequence[TraceSession], repeat: int) -> list[TraceSession]:
    """The sessions in the order of one repeat: another one each time, the same for every peer."""
    shuffled = list(sessions)
    random.Random(f"live {repeat}").shuffle(shuffled)
    return shuffled


def totals(sessions: Sequence[TraceSession]) -> Totals:
    """What one run through these sessions sends and waits for."""
    turns = [turn for session in sessions for turn in session.turns]
    new = 0
    for session in sessions:
        known = 0
        for index, turn in enumerate(session.turns):
            known = 0 if session.starts_new_prefix(index) else known
            new += max(0, turn.prompt_tokens - known)
            known = turn.prompt_tokens
    return Totals(
        sessions=len(sessions),
        turns=len(turns),
        prompt_tokens=sum(turn.prompt_tokens for turn in turns),
        new_prompt_tokens=new,
        output_tokens=sum(turn.output_tokens for turn in turns),
        tool_seconds=sum(turn.tool_seconds for turn in turns),
        peak_tokens=max(turn.prompt_tokens + turn.output_tokens for turn in turns),
    )


def run_seconds(run: Totals, *, replicas: int, concurrency: int, hit_rate: float) -> float:
    """A rough length of one run: what the engines compute, but no less than what the sessions wait for.

    `hit_rate` cannot beat an endless cache. Prefill and decode share a core, so their times add up.
    """
    uncached = max(run.new_prompt_tokens, run.prompt_tokens * (1.0 - hit_rate))
    computed = uncached / PREFILL_TOKENS_PER_SECOND + run.output_tokens / DECODE_TOKENS_PER_SECOND
    return max(computed / replicas, run.tool_seconds / concurrency)
