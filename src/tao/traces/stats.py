"""What a trace holds, in figures: sizes, waits by tool, compactions, sub-agents. One pass, a few bytes a
turn.

It must not know files or formats.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tao.traces.model import TraceSession


@dataclass(frozen=True, slots=True)
class Spread:
    """Count, sum and percentiles of one quantity; percentiles are 0 for an empty one."""

    count: int
    total: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: "array[float]") -> "Spread":
        if not values:
            return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        numbers = np.frombuffer(values, dtype=np.float64)
        p50, p90, p99 = np.percentile(numbers, (50, 90, 99)).tolist()
        return cls(len(values), float(numbers.sum()), p50, p90, p99, float(numbers.max()))


@dataclass(frozen=True, slots=True)
class TraceStats:
    """`tool_seconds_by_name` is sorted by total time, the longest first; human waits are not in it."""

    sessions: int
    children: int
    turns: int
    compactions: int
    sources: dict[str, int]
    agents: dict[str, int]
    turns_per_session: Spread
    prompt_tokens: Spread
    peak_prompt_tokens: Spread
    output_tokens: Spread
    tool_seconds: Spread
    human_seconds: Spread
    tool_seconds_by_name: dict[str, Spread]


class _Columns:
    def __init__(self) -> None:
        self.turns = array("d")
        self.prompts = array("d")
        self.peaks = array("d")
        self.outputs = array("d")
        self.humans = array("d")
        self.tools: dict[str, array[float]] = {}
        self.sources: Counter[str] = Counter()
        self.agents: Counter[str] = Counter()
        self.children = self.compactions = 0

    def add(self, session: TraceSession) -> None:
        self.sources[session.source] += 1
        self.agents[session.agent] += 1
        self.children += session.parent is not None
        self.turns.append(len(session.turns))
        self.peaks.append(session.peak_prompt_tokens)
        for index, turn in enumerate(session.turns):
            self.prompts.append(turn.prompt_tokens)
            self.outputs.append(turn.output_tokens)
            self.compactions += index > 0 and session.starts_new_prefix(index)
            if turn.human_seconds:
                self.humans.append(turn.human_seconds)
            if turn.tool is not None and not turn.tool.is_human:
                self.tools.setdefault(turn.tool.name, array("d")).append(turn.tool_seconds)


def trace_stats(sessions: Iterable[TraceSession]) -> TraceStats:
    """Go through the sessions once."""
    columns = _Columns()
    for session in sessions:
        columns.add(session)
    by_name = {name: Spread.of(values) for name, values in columns.tools.items()}
    every_tool = array("d")
    for name in sorted(columns.tools):
        every_tool.extend(columns.tools[name])
    return TraceStats(
        sessions=len(columns.turns),
        children=columns.children,
        turns=len(columns.prompts),
        compactions=columns.compactions,
        sources=dict(sorted(columns.sources.items())),
        agents=dict(sorted(columns.agents.items())),
        turns_per_session=Spread.of(columns.turns),
        prompt_tokens=Spread.of(columns.prompts),
        peak_prompt_tokens=Spread.of(columns.peaks),
        output_tokens=Spread.of(columns.outputs),
        tool_seconds=Spread.of(every_tool),
        human_seconds=Spread.of(columns.humans),
        tool_seconds_by_name=dict(sorted(by_name.items(), key=lambda item: (-item[1].total, item[0]))),
    )
