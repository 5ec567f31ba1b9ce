"""Predicted against actual, for each tool: what an exporter shows of a predictor's honesty. Bounded in memory.

A forecast made at the start of an absence is compared with its duration when it is over. It must not know who predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tao.policies.returns.port import HUMAN, Absence, Forecast

OTHER = "(other)"
PARALLEL = "(parallel)"
CLASSES_MAX = 64
CLASS_CHARS_MAX = 64
INTERVAL_LEVELS = (0.5, 0.8, 0.95)
HALF_SECOND = 0.5


@dataclass(slots=True)
class ToolCalibration:
    """Sums since the start; all of them only grow. `covered`: calls within the interval of each of `INTERVAL_LEVELS`."""

    calls: int = 0
    absolute_error_seconds: float = 0.0
    within_half_second: int = 0
    covered: list[int] = field(default_factory=lambda: [0] * len(INTERVAL_LEVELS))

    def add(self, forecast: Forecast, duration_seconds: float) -> None:
        """One absence that is over. The point that is judged is the median."""
        error_seconds = abs(forecast.quantile(0.5) - duration_seconds)
        self.calls += 1
        self.absolute_error_seconds += error_seconds
        self.within_half_second += error_seconds <= HALF_SECOND
        for index, level in enumerate(INTERVAL_LEVELS):
            low, high = forecast.interval(level)
            self.covered[index] += low <= duration_seconds <= high

    def to_json(self) -> dict[str, object]:
        """Shares and the mean, JSON-ready."""
        calls = max(1, self.calls)
        return {
            "calls": self.calls,
            "mean_absolute_error_seconds": self.absolute_error_seconds / calls,
            "within_half_second": self.within_half_second / calls,
            "coverage": {
                f"{level * 100:g}": covered / calls
                for level, covered in zip(INTERVAL_LEVELS, self.covered, strict=True)
            },
        }


class ReturnCalibration:
    """One `ToolCalibration` a tool: the first `CLASSES_MAX` names that come, all later ones together as `(other)`."""

    def __init__(self) -> None:
        self._by_tool: dict[str, ToolCalibration] = {}

    @property
    def by_tool(self) -> Mapping[str, ToolCalibration]:
        """By the name of the tool; `(human)`, `(parallel)` and `(other)` beside them."""
        return self._by_tool

    def record(self, absence: Absence, forecast: Forecast, duration_seconds: float) -> None:
        """An absence is over; `forecast` was made at its start."""
        name = tool_class(absence)
        if name not in self._by_tool and len(self._by_tool) >= CLASSES_MAX:
            name = OTHER
        self._by_tool.setdefault(name, ToolCalibration()).add(forecast, duration_seconds)

    def to_json(self) -> dict[str, object]:
        """JSON-ready, by tool."""
        return {name: known.to_json() for name, known in self._by_tool.items()}


def tool_class(absence: Absence) -> str:
    """The name under which an absence is reported."""
    if not absence.tools:
        return HUMAN
    names = {tool.name for tool in absence.tools}
    return absence.tools[0].name[:CLASS_CHARS_MAX] if len(names) == 1 else PARALLEL
