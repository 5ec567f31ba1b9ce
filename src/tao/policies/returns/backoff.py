"""Our predictor: histograms at five levels, each filled up from the more general one (hierarchical back-off).

All calls -> this tool -> this class (tool, command head, time-out) -> the class in this tenant -> in this session. Where a
level has seen few calls, or few that lasted so long, the level above speaks (`pooling`). Every level forgets exponentially
and is bounded in keys.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from tao.policies.returns.bins import BIN_COUNT, bin_of
from tao.policies.returns.classes import HUMAN_CLASS, CallClass, Kind, class_of, short_name
from tao.policies.returns.coverage import IntervalCoverage
from tao.policies.returns.forecast import DelayedForecast, HistogramForecast, LatestForecast
from tao.policies.returns.port import Absence, Exporting, Forecast, LearnedStateError
from tao.policies.returns.sketch import UNIT, Sketch, SketchTable
from tao.policies.returns.state import (
    in_one_step,
    rows_in_steps,
    sketch_from_json,
    sketch_to_json,
    state_section,
)

PRIOR_SECONDS: Mapping[Kind, float] = {
    "run": 5.0,
    "after-sleep": 0.2,
    "background": 0.05,
    "human": 120.0,
}
"""What is believed before anything was seen: the method's default for tools, the median of recorded traces for the rest."""

ROOT_SOURCES: Mapping[Kind, str] = {
    "run": "history of all tools",
    "after-sleep": "history of what follows a sleep",
    "background": "history of background calls",
    "human": "history of human waits",
}
PRIOR_WEIGHT = 0.5
SCORED_EVERY = 3
"""One in so many completed calls is scored for the calibration of intervals."""

UNSCORED_MAX = 1_024
"""Calls are scored when an interval is asked for. Of those that wait, older ones would weigh next to nothing by then."""


@dataclass(frozen=True, slots=True)
class Level:
    """`keys_max` histograms, each of a weight between one and two `weight_max`. The level above has the weight of
    `strength` calls.
    """

    name: str
    source: str
    keys_max: int
    weight_max: float
    strength: float


ROOT_WEIGHT_MAX = 500.0
LEVELS = (
    Level("session", "history of this session", 16_384, 6.0, 2.0),
    Level("tenant", "history of this tenant", 16_384, 40.0, 2.0),
    Level("command", "history of this command", 16_384, 70.0, 2.0),
    Level("tool", "history of this tool", 16_384, 70.0, 2.0),
)
"""The most particular first."""

LASTING = LEVELS[1:]
"""The levels that outlive the process; sessions do not."""

LASTING_KEYS_MAX = 2_048
"""The newest of each level are exported: it takes a tenth of a second, in steps."""


class BackoffHistogram:
    """`backoff-histogram`. At most `4 + 4 * 16,384` histograms of 64 bins, below 64 MiB, whatever names it is told."""

    name = "backoff-histogram"

    def __init__(self) -> None:
        self._roots = {kind: _prior(seconds) for kind, seconds in PRIOR_SECONDS.items()}
        self._tables = tuple(SketchTable(level.keys_max, level.weight_max) for level in LEVELS)
        self._coverage = IntervalCoverage()
        self._unscored: deque[tuple[HistogramForecast, float]] = deque(maxlen=UNSCORED_MAX)
        self._learned = 0

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        """Of parallel tools nobody says which lasted so long: only the histogram of all calls learns."""
        tools = absence.tools
        one = class_of(tools[0]) if tools else HUMAN_CLASS
        self._learned += 1
        if self._learned % SCORED_EVERY == 0 and tools and all(class_of(tool) == one for tool in tools[1:]):
            forecast = self._of_class(one, absence)
            self._unscored.append((forecast, max(0.0, duration_seconds - one.delay_seconds)))
        index = bin_of(duration_seconds - one.delay_seconds)
        self._roots[one.kind].add(index, ROOT_WEIGHT_MAX)
        if len(tools) <= 1:
            for key, table in zip(_keys(one, absence), self._tables):  # noqa: B905 - as many, and it is the hot path
                if key is not None:
                    table.add(key, index)

    def learn_unfinished(self, absence: Absence, elapsed_seconds: float) -> None:
        """The call is spread over the longer durations, by the chances that they had (Efron's redistribution)."""
        if len(absence.tools) > 1:
            return
        one = class_of(absence.tools[0]) if absence.tools else HUMAN_CLASS
        forecast = self._of_class(one, absence)
        masses = forecast.masses_beyond(max(0.0, elapsed_seconds - one.delay_seconds))
        self._roots[one.kind].add_masses(masses, ROOT_WEIGHT_MAX)
        for key, table in zip(_keys(one, absence), self._tables, strict=True):
            if key is not None:
                table.touched(key).add_masses(masses, table.weight_max)

    def predict(self, absence: Absence) -> Forecast:
        tools = absence.tools
        if not tools:
            return self._of_class(HUMAN_CLASS, absence)
        if len(tools) == 1:
            return self._with_delay(class_of(tools[0]), absence)
        classes = dict.fromkeys(map(class_of, tools))
        forecasts = tuple(self._with_delay(one, absence) for one in classes)
        return forecasts[0] if len(forecasts) == 1 else LatestForecast(forecasts)

    def exporting(self) -> Exporting:
        levels: dict[str, list[list[object]]] = {}
        for level, table in zip(LASTING, self._tables[1:], strict=True):
            levels[level.name] = yield from rows_in_steps(table.newest(LASTING_KEYS_MAX))
        while self._unscored:
            self._score_oldest()
            yield
        roots = {kind: sketch_to_json(sketch) for kind, sketch in self._roots.items()}
        return {"roots": roots, "levels": levels, "coverage": self._coverage.to_json()}

    def export_state(self) -> dict[str, object]:
        return in_one_step(self.exporting())

    def import_state(self, state: Mapping[str, object]) -> None:
        roots = state_section(state, "roots", dict)
        levels = state_section(state, "levels", dict)
        coverage = IntervalCoverage.from_json(state_section(state, "coverage", list))
        new_roots = {kind: sketch_from_json(roots.get(kind)) for kind in self._roots}
        if not all(sketch.weight for sketch in new_roots.values()):
            raise LearnedStateError("the histogram of all calls is empty")
        new_tables = [SketchTable(level.keys_max, level.weight_max) for level in LEVELS]
        for level, table in zip(LASTING, new_tables[1:], strict=True):
            for key, sketch in _rows(state_section(levels, level.name, list)):
                table.put(key, sketch)
        self._roots, self._tables, self._coverage = new_roots, tuple(new_tables), coverage
        self._unscored.clear()

    def widened(self, level: float) -> float:
        """The nominal level of an interval that holds the truth as often as `level` says."""
        while self._unscored:
            self._score_oldest()
        return self._coverage.widened(level)

    def _with_delay(self, one: CallClass, absence: Absence) -> Forecast:
        forecast = self._of_class(one, absence)
        return forecast if one.kind != "after-sleep" else DelayedForecast(forecast, one.delay_seconds)

    def _of_class(self, one: CallClass, absence: Absence) -> HistogramForecast:
        """Pool the levels that know the class, all calls first."""
        root = self._roots[one.kind]
        layers: list[tuple[int, float]] = []
        source = ""
        for key, table, level in zip(_keys(one, absence), self._tables, LEVELS):  # noqa: B905 - as many, and it is the hot path
            sketch = table.get(key) if key is not None else None
            if sketch is not None:
                layers.append((sketch.whole, level.strength * UNIT))
                source = source or level.source
        layers.append((root.whole, 0.0))
        source = source or (ROOT_SOURCES[one.kind] if root.weight > PRIOR_WEIGHT else "default")
        return HistogramForecast(layers, source, self, one.limit_seconds)

    def _score_oldest(self) -> None:
        """Compare what was forecast with what came, for the call that waits longest for it."""
        forecast, duration_seconds = self._unscored.popleft()
        self._coverage.add(forecast.surprise(duration_seconds))


def _keys(one: CallClass, absence: Absence) -> tuple[Hashable, Hashable, Hashable, Hashable]:
    """The key at each of `LEVELS`; None where a level does not apply."""
    return (
        (short_name(absence.session), *one.key) if absence.session else None,
        (short_name(absence.tenant), *one.key),
        one.key,
        one.tool if one.kind == "run" else None,
    )


def _prior(seconds: float) -> Sketch:
    masses = [0.0] * BIN_COUNT
    masses[bin_of(seconds)] = PRIOR_WEIGHT
    return Sketch.of(masses)


def _rows(rows: list[object]) -> list[tuple[Hashable, Sketch]]:
    found: list[tuple[Hashable, Sketch]] = []
    for row in rows:
        key, pairs = row if isinstance(row, list) and len(row) == 2 else (None, None)
        if isinstance(key, list) and key and all(isinstance(part, str) for part in key):
            key = tuple(key)
        if not isinstance(key, str | tuple):
            raise LearnedStateError(f"not a key of a histogram: {key!r}")
        found.append((key, sketch_from_json(pairs)))
    return found
