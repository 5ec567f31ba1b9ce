"""What Prometheus sees: a fold over events and commands, and gauges read from the core when the page is asked for.

Spans are model seconds. Labels are bounded: replicas, reasons and causes, never session ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
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
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    PlanFailed,
    PlanReady,
    ReplicaRemoved,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnProgress,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.gateway.bookmetrics import BOOKED
from tao.gateway.counts import Counted, Timed
from tao.gateway.creditmetrics import CREDIT
from tao.gateway.gauges import LIVE, RETURNS, Described, LiveState, ReturnsSoFar
from tao.gateway.kvmetrics import WATCH
from tao.gateway.planner import PlannerFigures
from tao.policies.returns import ReturnCalibration

HOLD_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
TTFT_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


COUNTED = (
    Described("tao_turns_total", "Turns that ended: finished, failed, client-left, refused", ("outcome",)),
    Described("tao_dispatches_total", "Turns sent to a replica", ("replica", "reason")),
    Described(
        "tao_refusals_total",
        "Turns turned away by TAO itself: pool-full, no-replica, shutting-down, replica-failed, session-ended",
        ("cause",),
    ),
    Described("tao_interrupts_total", "Admissions released at a tool boundary", ("reason",)),
    Described("tao_migrations_total", "Admissions on another replica than the session's last one"),
    Described("tao_sessions_closed_total", "Sessions forgotten", ("cause",)),
    Described("tao_plans_total", "Joint decisions that came back, by what answered", ("solver", "status")),
    Described("tao_plans_dropped_total", "Of these, stale as a whole: nobody they placed could be admitted"),
    Described("tao_plan_sessions_dropped_total", "Sessions that a plan placed and that were not admitted"),
    Described("tao_tokens_total", "Tokens of finished turns: prompt, of these cached, and output", ("kind",)),
    Described(
        "tao_tokens_estimated_total",
        "Tokens of finished turns that the engine did not count, as TAO estimates them: prompt and output",
        ("kind",),
    ),
    Described(
        "tao_tool_reports_total",
        "What clients reported of their tools, by event and outcome",
        ("event", "outcome"),
    ),
)
TIMED = (
    Described("tao_hold_seconds", "Histogram: how long dispatched turns were held"),
    Described(
        "tao_ttft_seconds",
        "Histogram: from the arrival of a turn to its first output where it streams, holds included",
    ),
)
METRICS = (*COUNTED, *TIMED, *LIVE, *BOOKED, *RETURNS, *CREDIT, *WATCH)
"""All that the page may show."""


@dataclass(slots=True)
class _Arrived:
    """A turn that has not ended, by TAO's own count."""

    at: float
    prompt_tokens: int
    output_tokens: int = 0


class GatewayMetrics:
    """Observer of the driver and source of the `/metrics` page."""

    def __init__(
        self, scheduler: Scheduler, planner: PlannerFigures, calibration: ReturnCalibration | None = None
    ) -> None:
        """`calibration`: of the policy's predictions, where it makes any."""
        self.registry = CollectorRegistry()
        self._arrived: dict[TurnId, _Arrived] = {}
        self._home: dict[SessionId, ReplicaId] = {}
        counters = {of.name: Counted(of) for of in COUNTED}
        self._turns = counters["tao_turns_total"]
        self._dispatches = counters["tao_dispatches_total"]
        self._refusals = counters["tao_refusals_total"]
        self._interrupts = counters["tao_interrupts_total"]
        self._migrations = counters["tao_migrations_total"]
        self._closed = counters["tao_sessions_closed_total"]
        self._plans = counters["tao_plans_total"]
        self._plans_dropped = counters["tao_plans_dropped_total"]
        self._plan_sessions_dropped = counters["tao_plan_sessions_dropped_total"]
        self._tokens = counters["tao_tokens_total"]
        self._estimated = counters["tao_tokens_estimated_total"]
        self._reports = counters["tao_tool_reports_total"]
        hold, ttft = TIMED
        self._hold = Timed(hold, HOLD_BUCKETS)
        self._ttft = Timed(ttft, TTFT_BUCKETS)
        for shown in (*counters.values(), self._hold, self._ttft, LiveState(scheduler, planner)):
            self.registry.register(shown)
        if calibration is not None:
            self.registry.register(ReturnsSoFar(calibration))

    def show(self, more: Collector) -> None:
        """Show this too: its metrics are among `METRICS`."""
        self.registry.register(more)

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(_WithoutCreated(self.registry))

    def tool_reported(self, event: str, outcome: str) -> None:
        """Count one report of the tools API; both labels are from closed lists."""
        self._reports.add((event, outcome))

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Fold one event and its commands in."""
        match event:
            case TurnArrived(at=at, turn=turn, prompt_tokens=prompt_tokens):
                self._arrived[turn] = _Arrived(at, prompt_tokens)
            case FirstToken() | TurnProgress():
                self._streamed(event)
            case TurnFinished():
                self._finished(event)
            case TurnFailed(turn=turn, retryable=False):
                self._ended(turn, "failed")
            case ClientLeft(turn=turn):
                self._ended(turn, "client-left")
            case PlanReady():
                self._planned(event, commands)
            case PlanFailed():
                self._plans.add(("none", "failed"))
            case ReplicaRemoved(replica=replica):
                self._dispatches.forget(replica)
        for command in commands:
            self._fold(command)

    def _fold(self, command: Command) -> None:
        match command:
            case DispatchTurn():
                self._dispatches.add((command.replica, command.reason.value))
                self._hold.observe(command.hold_seconds)
            case RefuseTurn():
                self._refusals.add((command.cause.value,))
                self._ended(command.turn, "refused")
            case InterruptSession():
                self._interrupts.add((command.reason.value,))
            case AdmitSession():
                before = self._home.get(command.session)
                self._home[command.session] = command.replica
                if before is not None and before != command.replica:
                    self._migrations.add()
            case CloseSession():
                self._home.pop(command.session, None)
                self._closed.add((command.cause.value,))

    def _streamed(self, event: FirstToken | TurnProgress) -> None:
        arrived = self._arrived.get(event.turn)
        if arrived is None:
            return
        if isinstance(event, FirstToken):
            self._ttft.observe(event.at - arrived.at)
        else:
            arrived.output_tokens = event.output_tokens

    def _planned(self, event: PlanReady, commands: Sequence[Command]) -> None:
        self._plans.add((event.solver, event.status))
        admitted = {command.session for command in commands if isinstance(command, AdmitSession)}
        dropped = sum(session not in admitted for session, _ in event.assignments)
        self._plan_sessions_dropped.add(by=dropped)
        self._plans_dropped.add(by=bool(event.assignments) and dropped == len(event.assignments))

    def _finished(self, event: TurnFinished) -> None:
        arrived = self._arrived.get(event.turn)
        self._ended(event.turn, "finished")
        if event.usage is None and arrived is not None:
            self._estimated.add(("prompt",), arrived.prompt_tokens)
            self._estimated.add(("output",), arrived.output_tokens)
        if event.usage is not None:
            self._tokens.add(("prompt",), event.usage.prompt_tokens)
            self._tokens.add(("cached",), event.usage.cached_tokens or 0)
            self._tokens.add(("output",), event.usage.output_tokens)

    def _ended(self, turn: TurnId, outcome: str) -> None:
        if self._arrived.pop(turn, None) is not None:
            self._turns.add((outcome,))


class _WithoutCreated(CollectorRegistry):
    """The same without the time at which each series began: as many series again, which nobody asks for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
