"""The core's front door: events in, commands out.

`Scheduler` is deterministic and does no I/O: the same settings, policy and events give the same commands, byte for byte.
It reads no clock and owns no timer; a driver arms one timer from `next_wakeup()` and sends `WakeUp` when it fires.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tao.core import arrivals, cache_watch, deciding, endings, membership, streaming, tool_phase, weights
from tao.core import events as ev
from tao.core.commands import Command
from tao.core.context import Context
from tao.core.ids import SessionId
from tao.core.ports import Policy, View
from tao.core.settings import SchedulerSettings
from tao.core.snapshot import explain, snapshot
from tao.core.transitions import row

Handler = Callable[[Context, Any], None]

OF_TURN: Mapping[type[ev.Event], Handler] = {
    ev.FirstToken: streaming.first_token,
    ev.TurnProgress: streaming.turn_progress,
    ev.TurnFinished: endings.turn_finished,
    ev.TurnFailed: endings.turn_failed,
    ev.TurnStopped: endings.turn_stopped,
    ev.ClientLeft: endings.client_left,
}
OF_SESSION: Mapping[type[ev.Event], Handler] = {
    ev.ToolFinished: tool_phase.tool_finished,
    ev.ToolExpected: tool_phase.tool_expected,
    ev.ToolBegan: tool_phase.tool_began,
    ev.ToolsMeasured: tool_phase.tools_measured,
    ev.SessionEnded: endings.session_ended,
}
OF_REPLICA: Mapping[type[ev.Event], Handler] = {
    ev.CapacityChanged: membership.capacity_changed,
    ev.ModelsChanged: membership.models_changed,
    ev.ReplicaDraining: membership.replica_draining,
    ev.ReplicaLost: membership.replica_lost,
    ev.ReplicaRemoved: membership.replica_removed,
    ev.CacheFlushed: membership.cache_flushed,
    ev.PrefixObserved: cache_watch.prefix_observed,
    ev.CacheWatchLost: cache_watch.cache_watch_lost,
}
ALWAYS: Mapping[type[ev.Event], Handler] = {
    ev.TurnArrived: arrivals.turn_arrived,
    ev.ReplicaJoined: membership.replica_joined,
    ev.WakeUp: deciding.wake_up,
    ev.PlanReady: deciding.plan_ready,
    ev.PlanFailed: deciding.plan_failed,
    ev.ShutdownStarted: deciding.shutdown_started,
    ev.WeightsUpdateBegan: weights.weights_update_began,
    ev.WeightsUpdateEnded: weights.weights_update_ended,
}


class Scheduler:
    """Schedules whole sessions over replicas by a policy. Not thread-safe; needs no lock when called from one thread."""

    def __init__(self, policy: Policy, settings: SchedulerSettings | None = None) -> None:
        self._context = Context(policy, settings or SchedulerSettings())

    def handle(self, event: ev.Event) -> list[Command]:
        """Take in what happened; return what to do, in order.

        An event without meaning in the present state (late, duplicate, unknown ids) changes nothing and is counted in
        `snapshot()["ignored"]`. Raises only on a defect of the core itself or of the policy: `PolicyAnswerError` where it
        answers what nothing can be done with.
        """
        ctx = self._context
        if event.at > ctx.now:  # noqa: PLR1730 - twice as fast as max
            ctx.now = event.at
        handler = self._handler(event)
        if handler is None:
            ctx.ignore(event)
        else:
            handler(ctx, event)
        return ctx.take_commands()

    def next_wakeup(self) -> float | None:
        """When to send `WakeUp` if nothing happens before; seconds on the events' clock, possibly in the past."""
        return deciding.next_wakeup(self._context)

    @property
    def view(self) -> View:
        """The live state, to be read only."""
        return self._context.state

    def snapshot(self, at: float | None = None) -> dict[str, object]:
        """The whole state as JSON-ready data, for `/state` and for people. `at`: ages are as of this time, not of the
        last event.
        """
        return snapshot(self._context, at)

    def explain(self, session: SessionId, at: float | None = None) -> dict[str, object] | None:
        """Why a session waits or where it went, as JSON-ready data; None where it is not known."""
        return explain(self._context, session, at)

    def check_invariants(self) -> None:
        """Assert what must always hold. Cost grows with the number of sessions: for tests and for idle moments."""
        self._context.state.check()

    def _handler(self, event: ev.Event) -> Handler | None:
        kind = type(event)
        handler = ALWAYS.get(kind)
        if handler is not None:
            return handler
        state = self._context.state
        handler = OF_TURN.get(kind)
        if handler is not None:
            turn = state.turns.get(event.turn)  # type: ignore[attr-defined]
            session = state.sessions[turn.session] if turn is not None else None
        elif kind in OF_REPLICA:
            return OF_REPLICA[kind] if event.replica in state.replicas else None  # type: ignore[attr-defined]
        else:
            session = state.sessions.get(event.session)  # type: ignore[attr-defined]
            handler = OF_SESSION[kind]
        if session is None or row(type(session.phase), kind) is None:
            return None
        return handler
