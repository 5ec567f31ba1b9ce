"""What `/metrics` reads in the moment in which it is asked: the core's present state, and how well returns are predicted.

Each metric is described once, for the page and for the documentation. Labels are bounded: replicas, and the tool classes of
the calibration. It must not know events or commands.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao.core import Scheduler
from tao.core.phases import Waiting
from tao.gateway.planner import PlannerFigures
from tao.policies.returns import ReturnCalibration
from tao.policies.returns.calibration import INTERVAL_LEVELS

Rows = Iterable[tuple[tuple[str, ...], float]]
"""Values of a metric, each with those of its labels."""


class Described(NamedTuple):
    """A metric: the name as Prometheus shows it, what it says, its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ()

    def metric(self, rows: Rows) -> Metric:
        """With its values: a counter where the name ends in `_total`, else a gauge."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        for values, value in rows:
            family.add_metric(values, value)
        return family


LIVE = (
    Described("tao_sessions", "Open sessions"),
    Described("tao_pool_sessions", "Sessions without admission, those whose tools run included"),
    Described("tao_waiting_sessions", "Sessions whose turns are held"),
    Described("tao_held_turns", "Turns held"),
    Described("tao_held_demand_tokens", "Footprint of the sessions whose turns are held"),
    Described("tao_replica_capacity_tokens", "KV capacity", ("replica",)),
    Described(
        "tao_replica_free_tokens", "Capacity minus reservations; negative when overcommitted", ("replica",)
    ),
    Described(
        "tao_replica_slots", "Sessions that the replica takes at once, where that is bounded", ("replica",)
    ),
    Described("tao_replica_free_slots", "Of these, free; negative when overcommitted", ("replica",)),
    Described("tao_replica_up", "1 when the replica takes admissions", ("replica",)),
    Described("tao_replica_turns_in_flight", "Turns on the replica", ("replica",)),
    Described("tao_planner_plans_total", "Joint decisions computed"),
    Described(
        "tao_planner_failures_total",
        "Decisions that the planner's process failed to give: timeout, crash, raised, busy, closed",
        ("cause",),
    ),
    Described("tao_planner_fallbacks_total", "Decisions that best-fit-decreasing gave in its place"),
    Described("tao_planner_restarts_total", "Restarts of the planner's process"),
    Described("tao_planner_seconds_total", "Wall seconds spent on decisions, all included"),
)
RETURNS = (
    Described("tao_returns_total", "Returns from tools that had been predicted", ("tool",)),
    Described(
        "tao_return_error_seconds_total",
        "Sum of their errors: the median predicted when the tool began against what came",
        ("tool",),
    ),
    Described("tao_returns_within_half_second_total", "Of these, off by half a second at most", ("tool",)),
    Described(
        "tao_returns_covered_total",
        "Of these, within the interval predicted to hold 50, 80 or 95 % of them",
        ("tool", "percent"),
    ),
)


class LiveState(Collector):
    """Gauges of the core's present state, and counters that the planner keeps."""

    def __init__(self, scheduler: Scheduler, planner: PlannerFigures) -> None:
        self._scheduler = scheduler
        self._planner = planner

    def collect(self) -> Iterator[Metric]:
        rows = self._rows()
        yield from (of.metric(rows[of.name]) for of in LIVE)

    def _rows(self) -> dict[str, Rows]:
        view = self._scheduler.view
        pool = [view.sessions[session] for session in view.pool]
        numbers = {
            "tao_sessions": len(view.sessions),
            "tao_pool_sessions": len(view.pool),
            "tao_waiting_sessions": view.waiting_sessions,
            "tao_held_turns": view.held_turns,
            "tao_held_demand_tokens": sum(s.footprint_tokens for s in pool if isinstance(s.phase, Waiting)),
            "tao_planner_plans_total": self._planner.plans,
            "tao_planner_fallbacks_total": self._planner.fallbacks,
            "tao_planner_restarts_total": self._planner.restarts,
            "tao_planner_seconds_total": self._planner.seconds,
        }
        replicas = list(view.replicas.values())
        return {
            **{name: [((), value)] for name, value in numbers.items()},
            "tao_planner_failures_total": [
                ((cause,), count) for cause, count in self._planner.failures_by.items()
            ],
            "tao_replica_capacity_tokens": [((r.id,), r.capacity_tokens) for r in replicas],
            "tao_replica_free_tokens": [((r.id,), view.free_tokens(r.id)) for r in replicas],
            "tao_replica_slots": [((r.id,), r.slots) for r in replicas if r.slots is not None],
            "tao_replica_free_slots": [
                ((r.id,), slots) for r in replicas if (slots := view.free_slots(r.id)) is not None
            ],
            "tao_replica_up": [((r.id,), float(r.state.value == "up")) for r in replicas],
            "tao_replica_turns_in_flight": [((r.id,), r.turns_in_flight) for r in replicas],
        }


class ReturnsSoFar(Collector):
    """Predicted against actual, by class of tool: counters that a calibration keeps."""

    def __init__(self, calibration: ReturnCalibration) -> None:
        self._calibration = calibration

    def collect(self) -> Iterator[Metric]:
        rows = self._rows()
        yield from (of.metric(rows[of.name]) for of in RETURNS)

    def _rows(self) -> dict[str, Rows]:
        known = list(self._calibration.by_tool.items())
        return {
            "tao_returns_total": [((name,), tool.calls) for name, tool in known],
            "tao_return_error_seconds_total": [
                ((name,), tool.absolute_error_seconds) for name, tool in known
            ],
            "tao_returns_within_half_second_total": [
                ((name,), tool.within_half_second) for name, tool in known
            ],
            "tao_returns_covered_total": [
                ((name, f"{level * 100:g}"), covered)
                for name, tool in known
                for level, covered in zip(INTERVAL_LEVELS, tool.covered, strict=True)
            ],
        }
