"""When will a session come back from its tools? The port of return predictors, and the paper's estimator.

A predictor learns from completed tool calls and answers with a duration from the start of the call. It sees names and
times, never arguments or results, and keeps a bounded table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Protocol

from tao.core.events import ToolCall

HUMAN = "(human)"
"""The key of a wait that no tool explains: the last turn asked for none."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """`duration_seconds` from the start of the call, and the evidence it rests on."""

    duration_seconds: float
    source: str


class ReturnPredictor(Protocol):
    """Predicts how long the tools of a turn keep a session away."""

    def learn(self, tools: Sequence[ToolCall], duration_seconds: float) -> None:
        """A phase with these tools lasted so long."""

    def predict(self, tools: Sequence[ToolCall]) -> Prediction:
        """The expected duration of a phase with these tools, from its start."""


@dataclass(slots=True)
class _History:
    """Count, mean, sum of squared deviations and range of completed calls (Welford's update)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = field(default=inf)
    most: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        delta = seconds - self.mean
        self.mean += delta / self.count
        self.squares += delta * (seconds - self.mean)
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)

    def conservative_seconds(self, risk: float) -> float:
        """Mean plus an empirical-Bernstein margin, `sqrt(2 v ln(3/d)/n) + 3 R ln(3/d)/n` (method, section 4).

        The margin is capped at the mean: with a handful of calls of a wide range it says nothing but "unknown".
        """
        scale = log(3.0 / risk) / self.count
        variance = self.squares / (self.count - 1) if self.count > 1 else 0.0
        margin = sqrt(2.0 * variance * scale) + 3.0 * (self.most - self.least) * scale
        return self.mean + min(margin, self.mean)


class EmpiricalBernstein:
    """The paper's evidence order below exposed deadlines: literal sleep, this tool's history, global history, 5 s."""

    def __init__(self, default_seconds: float = 5.0, risk: float = 0.05, tools_max: int = 4096) -> None:
        self._default_seconds = default_seconds
        self._risk = risk
        self._tools_max = tools_max
        self._by_tool: dict[str, _History] = {}
        self._global = _History()

    def learn(self, tools: Sequence[ToolCall], duration_seconds: float) -> None:
        if len(tools) == 1:
            self._history_of(tools[0].name).add(duration_seconds)
        elif not tools:
            self._history_of(HUMAN).add(duration_seconds)
        # The duration of parallel tools is that of the longest, and nobody says which: only the global history learns.
        if tools:
            self._global.add(duration_seconds)

    def predict(self, tools: Sequence[ToolCall]) -> Prediction:
        if not tools:
            return self._from_history(HUMAN)
        return max((self._of_tool(tool) for tool in tools), key=lambda p: p.duration_seconds)

    def _of_tool(self, tool: ToolCall) -> Prediction:
        if tool.sleep_seconds is not None:
            bound = inf if tool.timeout_seconds is None else tool.timeout_seconds
            return Prediction(min(tool.sleep_seconds, bound), "sleep")
        return self._from_history(tool.name)

    def _from_history(self, name: str) -> Prediction:
        known = self._by_tool.get(name)
        if known is not None and known.count:
            return Prediction(known.conservative_seconds(self._risk), f"history of {name}")
        if self._global.count:
            return Prediction(self._global.conservative_seconds(self._risk), "history of all tools")
        return Prediction(self._default_seconds, "default")

    def _history_of(self, name: str) -> _History:
        known = self._by_tool.pop(name, None) or _History()
        if len(self._by_tool) >= self._tools_max:
            del self._by_tool[next(iter(self._by_tool))]  # the tool that was learned of longest ago
        self._by_tool[name] = known
        return known
