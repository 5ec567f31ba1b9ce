"""What Prometheus sees: a fold over events and commands, and gauges read from the core when the page is asked for.

Spans are model seconds. Labels are bounded: replicas, reasons and causes, never session ids.
"""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao.core import Scheduler
from tao.core.commands import (
    AdmitSession,
    CloseSession,
    Command,
    DispatchTurn,
    InterruptSession,
    RefuseTurn,
)
from tao.core.events import ClientLeft, Event, FirstToken, TurnArrived, TurnFailed, TurnFinished
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.phases import Waiting
from tao.gateway.planner import PlannerFigures

HOLD_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
TTFT_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class GatewayMetrics:
    """Observer of the driver and source of the `/metrics` page."""

    def __init__(self, scheduler: Scheduler, planner: PlannerFigures) -> None:
        self.registry = CollectorRegistry()
        self._arrived: dict[TurnId, float] = {}
        self._home: dict[SessionId, ReplicaId] = {}
        self._turns = self._counter("tao_turns", "Turns that ended, by outcome", "outcome")
        self._dispatches = self._counter("tao_dispatches", "Turns sent to a replica", "replica", "reason")
        self._refusals = self._counter("tao_refusals", "Turns turned away by TAO itself", "cause")
        self._interrupts = self._counter("tao_interrupts", "Admissions released at a tool boundary", "reason")
        self._migrations = self._counter("tao_migrations", "Admissions on another replica than the last one")
        self._closed = self._counter("tao_sessions_closed", "Sessions forgotten", "cause")
        self._tokens = self._counter("tao_tokens", "Tokens of finished turns by kind", "kind")
        self._reports = self._counter(
            "tao_tool_reports",
            "What clients reported of their tools, by event and outcome",
            "event",
            "outcome",
        )
        self._hold = Histogram(
            "tao_hold_seconds",
            "How long dispatched turns were held (model seconds)",
            buckets=HOLD_BUCKETS,
            registry=self.registry,
        )
        self._ttft = Histogram(
            "tao_ttft_seconds",
            "From the arrival of a turn to its first output, holds included (model seconds)",
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_LiveState(scheduler, planner))

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)

    def tool_reported(self, event: str, outcome: str) -> None:
        """Count one report of the tools API; both labels are from closed lists."""
        self._reports.labels(event, outcome).inc()

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Fold one event and its commands in."""
        match event:
            case TurnArrived(at=at, turn=turn):
                self._arrived[turn] = at
            case FirstToken(at=at, turn=turn):
                arrived = self._arrived.get(turn)
                if arrived is not None:
                    self._ttft.observe(at - arrived)
            case TurnFinished():
                self._finished(event)
            case TurnFailed(turn=turn, retryable=False):
                self._ended(turn, "failed")
            case ClientLeft(turn=turn):
                self._ended(turn, "client-left")
        for command in commands:
            self._fold(command)

    def _fold(self, command: Command) -> None:
        match command:
            case DispatchTurn():
                self._dispatches.labels(command.replica, command.reason.value).inc()
                self._hold.observe(command.hold_seconds)
            case RefuseTurn():
                self._refusals.labels(command.cause.value).inc()
                self._ended(command.turn, "refused")
            case InterruptSession():
                self._interrupts.labels(command.reason.value).inc()
            case AdmitSession():
                before = self._home.get(command.session)
                self._home[command.session] = command.replica
                if before is not None and before != command.replica:
                    self._migrations.inc()
            case CloseSession():
                self._home.pop(command.session, None)
                self._closed.labels(command.cause.value).inc()

    def _finished(self, event: TurnFinished) -> None:
        self._ended(event.turn, "finished")
        if event.usage is not None:
            self._tokens.labels("prompt").inc(event.usage.prompt_tokens)
            self._tokens.labels("cached").inc(event.usage.cached_tokens or 0)
            self._tokens.labels("output").inc(event.usage.output_tokens)

    def _ended(self, turn: TurnId, outcome: str) -> None:
        if self._arrived.pop(turn, None) is not None:
            self._turns.labels(outcome).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


class _LiveState(Collector):
    """Gauges of the core's present state."""

    def __init__(self, scheduler: Scheduler, planner: PlannerFigures) -> None:
        self._scheduler = scheduler
        self._planner = planner

    def collect(self) -> Iterable[Metric]:
        view = self._scheduler.view
        yield _gauge("tao_sessions", "Open sessions", len(view.sessions))
        yield _gauge("tao_pool_sessions", "Sessions without admission", len(view.pool))
        yield _gauge("tao_waiting_sessions", "Sessions whose turns are held", view.waiting_sessions)
        yield _gauge("tao_held_turns", "Turns held", view.held_turns)
        pool = [view.sessions[session] for session in view.pool]
        demand_tokens = sum(s.footprint_tokens for s in pool if isinstance(s.phase, Waiting))
        yield _gauge("tao_held_demand_tokens", "Footprint of sessions whose turns are held", demand_tokens)
        yield _gauge("tao_planner_plans", "Plans computed", self._planner.plans)
        yield _gauge(
            "tao_planner_failures", "Plans the planner's process failed to give", self._planner.failures
        )
        yield _gauge("tao_planner_fallbacks", "Plans answered by the fallback", self._planner.fallbacks)
        yield _gauge("tao_planner_restarts", "Restarts of the planner's process", self._planner.restarts)
        yield _gauge(
            "tao_planner_seconds", "Wall seconds spent planning, all included", self._planner.seconds
        )
        per_replica = {
            "capacity": GaugeMetricFamily("tao_replica_capacity_tokens", "KV capacity", labels=["replica"]),
            "free": GaugeMetricFamily(
                "tao_replica_free_tokens", "Capacity minus reservations", labels=["replica"]
            ),
            "up": GaugeMetricFamily(
                "tao_replica_up", "1 when the replica takes admissions", labels=["replica"]
            ),
            "turns": GaugeMetricFamily(
                "tao_replica_turns_in_flight", "Turns on the replica", labels=["replica"]
            ),
        }
        for replica in view.replicas.values():
            per_replica["capacity"].add_metric([replica.id], replica.capacity_tokens)
            per_replica["free"].add_metric([replica.id], view.free_tokens(replica.id))
            per_replica["up"].add_metric([replica.id], float(replica.state.value == "up"))
            per_replica["turns"].add_metric([replica.id], replica.turns_in_flight)
        yield from per_replica.values()


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
