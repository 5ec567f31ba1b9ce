"""The paper's predictor: a conservative mean of this tool's history (method, section 4; paper App. A).

It answers with a point, widened by a finite-sample margin; it knows nothing of clocks, sessions' phases or files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt

from tao.core.events import ToolCall
from tao.policies.returns.classes import short_name
from tao.policies.returns.forecast import PointForecast
from tao.policies.returns.port import HUMAN, Absence, Exporting, Forecast, LearnedStateError
from tao.policies.returns.state import checked_number, in_one_step, state_section

SUM_MAX = 1e300
TOOLS_OF_STEP = 64


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

    def to_json(self) -> list[float]:
        return [self.count, self.mean, self.squares, self.least if self.count else 0.0, self.most]

    @classmethod
    def from_json(cls, values: object) -> "_History":
        if not isinstance(values, list) or len(values) != 5:
            raise LearnedStateError(f"a history is a list of five numbers, not {values!r}")
        count, mean, squares, least, most = (checked_number(value, SUM_MAX) for value in values)
        return cls(int(count), mean, squares, least if count else inf, most)


class EmpiricalBernstein:
    """The paper's evidence order below exposed deadlines: literal sleep, this tool's history, global history, 5 s."""

    name = "empirical-bernstein"

    def __init__(self, default_seconds: float = 5.0, risk: float = 0.05, tools_max: int = 4096) -> None:
        self._default_seconds = default_seconds
        self._risk = risk
        self._tools_max = tools_max
        self._by_tool: dict[str, _History] = {}
        self._global = _History()

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        tools = absence.tools
        if len(tools) == 1:
            self._history_of(short_name(tools[0].name)).add(duration_seconds)
        elif not tools:
            self._history_of(HUMAN).add(duration_seconds)
        # The duration of parallel tools is that of the longest, and nobody says which: only the global history learns.
        if tools:
            self._global.add(duration_seconds)

    def learn_unfinished(self, absence: Absence, elapsed_seconds: float) -> None:
        """The paper's history is of completed calls."""

    def predict(self, absence: Absence) -> Forecast:
        return self._longest(absence.tools) if absence.tools else self._from_history(HUMAN)

    def exporting(self) -> Exporting:
        tools: list[list[object]] = []
        for name, known in list(self._by_tool.items()):
            tools.append([name, known.to_json()])
            if len(tools) % TOOLS_OF_STEP == 0:
                yield
        return {"global": self._global.to_json(), "tools": tools}

    def export_state(self) -> dict[str, object]:
        return in_one_step(self.exporting())

    def import_state(self, state: Mapping[str, object]) -> None:
        everything = _History.from_json(state.get("global"))
        by_tool: dict[str, _History] = {}
        for row in state_section(state, "tools", list)[-self._tools_max :]:
            name, values = row if isinstance(row, list) and len(row) == 2 else (None, None)
            if not isinstance(name, str):
                raise LearnedStateError(f"not the name of a tool: {name!r}")
            by_tool[short_name(name)] = _History.from_json(values)
        self._by_tool, self._global = by_tool, everything

    def _longest(self, tools: Sequence[ToolCall]) -> PointForecast:
        return max((self._of_tool(tool) for tool in tools), key=lambda f: f.duration_seconds)

    def _of_tool(self, tool: ToolCall) -> PointForecast:
        if tool.sleep_seconds is not None:
            bound = inf if tool.timeout_seconds is None else tool.timeout_seconds
            return PointForecast(min(tool.sleep_seconds, bound), "sleep")
        return self._from_history(short_name(tool.name))

    def _from_history(self, name: str) -> PointForecast:
        known = self._by_tool.get(name)
        if known is not None and known.count:
            return PointForecast(known.conservative_seconds(self._risk), f"history of {name}")
        if self._global.count:
            return PointForecast(self._global.conservative_seconds(self._risk), "history of all tools")
        return PointForecast(self._default_seconds, "default")

    def _history_of(self, name: str) -> _History:
        known = self._by_tool.pop(name, None) or _History()
        if len(self._by_tool) >= self._tools_max:
            del self._by_tool[next(iter(self._by_tool))]  # the tool that was learned of longest ago
        self._by_tool[name] = known
        return known
