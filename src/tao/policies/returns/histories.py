"""What predictors are measured against: a constant, the history of all calls, the history of each tool.

The histories answer with their whole empirical distribution, so that they are compared at their best.
"""

from collections.abc import Mapping

from tao.policies.returns.bins import bin_of
from tao.policies.returns.classes import short_name
from tao.policies.returns.forecast import HistogramForecast, LatestForecast, PointForecast
from tao.policies.returns.port import HUMAN, Absence, Exporting, Forecast
from tao.policies.returns.sketch import SketchTable
from tao.policies.returns.state import in_one_step, rows_in_steps, sketch_from_json

DEFAULT_SECONDS = 5.0
WEIGHT_MAX = 500.0
TOOLS_MAX = 4096


class ConstantFiveSeconds:
    """The method's default for every absence."""

    name = "constant-5s"

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        """Nothing to learn."""

    def learn_unfinished(self, absence: Absence, elapsed_seconds: float) -> None:
        """Nothing to learn."""

    def predict(self, absence: Absence) -> Forecast:  # noqa: ARG002
        return PointForecast(DEFAULT_SECONDS, "default")

    def exporting(self) -> Exporting:
        yield
        return {}

    def export_state(self) -> dict[str, object]:
        return {}

    def import_state(self, state: Mapping[str, object]) -> None:
        """Nothing to take over."""


class GlobalHistory:
    """Every tool as any other; human waits apart."""

    name = "global-history"

    def __init__(self) -> None:
        self._sketches = SketchTable(TOOLS_MAX, WEIGHT_MAX)

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        for key in self._keys_to_teach(absence):
            self._sketches.add(key, bin_of(duration_seconds))

    def learn_unfinished(self, absence: Absence, elapsed_seconds: float) -> None:
        """A plain history is of completed calls."""

    def predict(self, absence: Absence) -> Forecast:
        if not absence.tools:
            return self._of(HUMAN)
        names = list(dict.fromkeys(short_name(tool.name) for tool in absence.tools))
        return self._of(names[0]) if len(names) == 1 else LatestForecast(tuple(map(self._of, names)))

    def exporting(self) -> Exporting:
        rows = yield from rows_in_steps(self._sketches.newest(TOOLS_MAX))
        return {str(key): sketch for key, sketch in rows}

    def export_state(self) -> dict[str, object]:
        return in_one_step(self.exporting())

    def import_state(self, state: Mapping[str, object]) -> None:
        made = SketchTable(TOOLS_MAX, WEIGHT_MAX)
        for key, pairs in state.items():
            made.put(key, sketch_from_json(pairs))
        self._sketches = made

    def _keys_to_teach(self, absence: Absence) -> list[str]:
        return [""] if absence.tools else [HUMAN]

    def _of(self, name: str) -> Forecast:
        return self._answer(HUMAN if name == HUMAN else "")

    def _answer(self, key: str) -> Forecast:
        sketch = self._sketches.get(key)
        if sketch is None or not sketch.weight:
            return PointForecast(DEFAULT_SECONDS, "default")
        return HistogramForecast([(sketch.whole, 0.0)], f"history of {key or 'all tools'}")


class PerToolHistory(GlobalHistory):
    """The history of a tool where there is one, else that of all."""

    name = "per-tool-history"

    def _keys_to_teach(self, absence: Absence) -> list[str]:
        keys = super()._keys_to_teach(absence)
        return [*keys, short_name(absence.tools[0].name)] if len(absence.tools) == 1 else keys

    def _of(self, name: str) -> Forecast:
        return self._answer(name if self._sketches.get(name) is not None else "")
