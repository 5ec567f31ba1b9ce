"""What time brings: bounds on waiting and idling, and the planning points of the policy.

A plan is computed from a snapshot elsewhere and comes back as an event. By then the world has moved: `plan_ready` finds
which of its sessions changed, lets the policy say what still holds, and admits only what fits now.
"""

from collections.abc import Iterable

from tao.core.admission import expire, fits, interrupt, lapse, place, refuse_held
from tao.core.commands import Closing, ComputePlan, Interruption, Reason, Refusal
from tao.core.context import Context, Outstanding
from tao.core.events import PlanFailed, PlanReady, ShutdownStarted, WakeUp
from tao.core.ids import PlanId, ReplicaId, SessionId
from tao.core.phases import Acting, Away
from tao.core.ports import Assignment
from tao.core.session import Session
from tao.core.weights import end_weights_update


def wake_up(ctx: Context, event: WakeUp) -> None:  # noqa: ARG001 - the moment is all there is to it
    """Everything that is due now, in a fixed order: bounds first, then the policy."""
    if ctx.state.weights_until is not None and ctx.state.weights_until <= ctx.now:
        end_weights_update(ctx)
    _end_holds(ctx)
    _expire_idle(ctx)
    if ctx.outstanding is not None and _plan_deadline(ctx) <= ctx.now:
        _forget_plan(ctx)
    if ctx.state.weights_until is None:
        due = ctx.policy.next_planning_at(ctx.state, ctx.now)
        if due is not None and due <= ctx.now:
            _decide(ctx)


def next_wakeup(ctx: Context) -> float | None:
    """The next moment at which `wake_up` has something to do; None when only an event can bring it."""
    state = ctx.state
    if state.weights_until is not None:
        # nothing is to be decided while nothing may be dispatched
        soonest: float | None = state.weights_until
    else:
        soonest = ctx.policy.next_planning_at(state, ctx.now)
        if state.holding:
            soonest = _sooner(soonest, _soonest_hold(ctx)[0])
    if state.idle:
        soonest = _sooner(soonest, _next_idle_deadline(ctx))
    if ctx.outstanding is not None:
        soonest = _sooner(soonest, _plan_deadline(ctx))
    return soonest


def _sooner(soonest: float | None, deadline: float) -> float:
    return deadline if soonest is None or deadline < soonest else soonest


def plan_ready(ctx: Context, event: PlanReady) -> None:
    """Admit what of the plan still holds and still fits."""
    plan = ctx.outstanding
    if plan is None or plan.id != event.plan:
        ctx.ignore(event)
        return
    _forget_plan(ctx)
    changed = [session for session, _ in event.assignments if _has_changed(ctx, session, plan)]
    for session_id, replica in ctx.policy.select(ctx.state, event, changed, ctx.now):
        session = ctx.state.sessions.get(session_id)
        if session is not None and session_id in ctx.state.pool and _may_go(ctx, session, replica):
            _place_if_it_fits(ctx, session, replica, Reason.PLANNED)


def plan_failed(ctx: Context, event: PlanFailed) -> None:
    """No plan this time; the policy will ask again."""
    if ctx.outstanding is None or ctx.outstanding.id != event.plan:
        ctx.ignore(event)
        return
    _forget_plan(ctx)


def shutdown_started(ctx: Context, event: ShutdownStarted) -> None:  # noqa: ARG001
    """Held turns get a clear answer now; running ones finish."""
    ctx.shutting_down = True
    for session_id in list(ctx.state.holding):
        refuse_held(ctx, ctx.state.sessions[session_id], Refusal.SHUTTING_DOWN)


def _decide(ctx: Context) -> None:
    for session_id in ctx.policy.interrupts(ctx.state, ctx.now):
        session = ctx.state.sessions[session_id]
        overcommitted = session.home is not None and ctx.state.free_tokens(session.home) < 0
        interrupt(ctx, session, Interruption.OVERCOMMITTED if overcommitted else Interruption.RULE)
    for session_id in ctx.policy.lapsed(ctx.state, ctx.now):
        lapse(ctx, ctx.state.sessions[session_id])
    decision = ctx.policy.decide(ctx.state, ctx.now)
    _place_by_rule(ctx, decision.placements)
    if decision.request is not None and ctx.outstanding is None and decision.request.candidates:
        ctx.plans_made += 1
        plan = PlanId(ctx.plans_made)
        epochs = {candidate.session: candidate.epoch for candidate in decision.request.candidates}
        ctx.outstanding = Outstanding(plan, epochs, ctx.now)
        ctx.state.planning = True
        ctx.emit(ComputePlan(plan, decision.request))


def _place_by_rule(ctx: Context, placements: Iterable[Assignment]) -> None:
    for session_id, replica in placements:
        session = ctx.state.sessions[session_id]
        assert any(up.id == replica for up in ctx.state.up_replicas()), replica
        if ctx.state.eligible_replicas(session):
            place(ctx, session, replica, Reason.RULE)


def _place_if_it_fits(ctx: Context, session: Session, replica: ReplicaId, reason: Reason) -> None:
    if fits(ctx, session, replica):
        place(ctx, session, replica, reason)


def _has_changed(ctx: Context, session_id: SessionId, plan: Outstanding) -> bool:
    session = ctx.state.sessions.get(session_id)
    return session is None or session_id not in ctx.state.pool or session.epoch != plan.epochs.get(session_id)


def _may_go(ctx: Context, session: Session, replica: ReplicaId) -> bool:
    return any(eligible.id == replica for eligible in ctx.state.eligible_replicas(session))


def _forget_plan(ctx: Context) -> None:
    ctx.outstanding = None
    ctx.state.planning = False


def _plan_deadline(ctx: Context) -> float:
    assert ctx.outstanding is not None
    return ctx.outstanding.since + ctx.settings.plan_seconds_max


def _soonest_hold(ctx: Context) -> tuple[float, SessionId]:
    """The deadline that comes first, and whose it is; some session is held.

    Of those who ask for one model the one held longest is due first; between models the bounds differ.
    """
    state, settings = ctx.state, ctx.settings
    soonest: tuple[float, SessionId] | None = None
    for model, held in state.held_for.items():
        oldest = next(iter(held))
        since = max(state.holding[oldest], state.dispatching_since)
        if state.serving.of(model):
            due_at = since + settings.hold_seconds_max
        else:
            due_at = max(since, state.serving.unserved_since(model)) + settings.no_replica_seconds_max
        if soonest is None or due_at < soonest[0]:
            soonest = due_at, oldest
    assert soonest is not None
    return soonest


def _next_idle_deadline(ctx: Context) -> float:
    """Of the session that is idle longest; there is one."""
    return next(iter(ctx.state.idle.values())) + ctx.settings.idle_seconds_max


def _end_holds(ctx: Context) -> None:
    """At its bound a held session is placed by force, or refused where no replica that serves it is up."""
    while ctx.state.holding and ctx.state.weights_until is None:
        deadline, session_id = _soonest_hold(ctx)
        if deadline > ctx.now:
            return
        session = ctx.state.sessions[session_id]
        roomiest = ctx.state.most_room(session.model)
        if roomiest is None:
            refuse_held(ctx, session, Refusal.NO_REPLICA)
        else:
            place(ctx, session, roomiest.id, Reason.FORCED)


def _expire_idle(ctx: Context) -> None:
    while ctx.state.idle:
        session_id, heard_at = next(iter(ctx.state.idle.items()))
        if heard_at + ctx.settings.idle_seconds_max > ctx.now:
            return
        session = ctx.state.sessions[session_id]
        assert isinstance(session.phase, Acting | Away), session
        expire(ctx, session, Closing.IDLE)
