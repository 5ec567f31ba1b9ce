"""A turn arrives: find or open its session, bring the main line up to date, and place the turn or hold it.

The order of the questions is the order of the code: is it known already; does it belong to the main line; is there
anywhere to go; is it too large for everyone; and only then, what does the policy say.
"""

from tao.core.admission import (
    admit,
    allowed,
    cover_leader,
    dispatch,
    expire,
    fits,
    interrupt,
    interrupt_return,
    is_oversize,
    place_if_oversize,
)
from tao.core.commands import Closing, Interruption, InterruptSession, Reason, Refusal, RefuseTurn
from tao.core.context import Context
from tao.core.events import TurnArrived, TurnKind
from tao.core.facts import ToolEnded, TurnHeld
from tao.core.ids import ReplicaId, SessionId, side_session_id
from tao.core.phases import IN_FLIGHT, Absent, Acting, Away, Running, Stopping, Waiting
from tao.core.ports import Hold, Place, PolicyAnswerError
from tao.core.session import Replica, ReplicaState, Session, Turn
from tao.core.tool_phase import child_arrived
from tao.core.transitions import check_row


def turn_arrived(ctx: Context, event: TurnArrived) -> None:
    """Every arriving turn is dispatched, held or refused before this returns."""
    if event.turn in ctx.state.turns:
        ctx.ignore(event)
        return
    if ctx.shutting_down:
        ctx.emit(RefuseTurn(event.turn, event.session, Refusal.SHUTTING_DOWN))
        return
    session = _find_or_open(ctx, event)
    if session is None:
        ctx.emit(RefuseTurn(event.turn, event.session, Refusal.POOL_FULL))
        return
    _ask_for(ctx, session, event.model)
    before = session.phase
    _update_main_line(ctx, session, event)
    turn = Turn(event.turn, session.id, event.kind, event.prompt_tokens, session.line, ctx.now, event.model)
    choice = _choose(ctx, session, turn)
    if isinstance(choice, Place):
        ctx.state.turns[turn.id] = turn
        _join_running(ctx, session, turn, *allowed(ctx, session, choice.replica, choice.reason))
    else:
        _check_hold(ctx, choice)
        _hold(ctx, session, turn, before)
        place_if_oversize(ctx, session)  # it may have grown while its earlier turns are held
    check_row(before, TurnArrived, session.phase)
    if session.id in ctx.state.sessions:
        child_arrived(ctx, session)


def _find_or_open(ctx: Context, event: TurnArrived) -> Session | None:
    """The session of the turn; a fresh record for a new one and for each side turn; None when the table is full.

    While weights are updated, a turn beside others on the engine is taken for a side turn: its session cannot be held.
    """
    state = ctx.state
    side_of: SessionId | None = None
    session_id = event.session
    if event.kind is TurnKind.SIDE or (state.weights_until is not None and _is_in_flight(ctx, session_id)):
        side_of, session_id = event.session, side_session_id(event.session, event.turn)
    found = state.sessions.get(session_id)
    if found is not None:
        return found
    if len(state.sessions) >= ctx.settings.sessions_max:
        longest_idle = next(iter(state.idle), None)
        if longest_idle is None:
            return None
        expire(ctx, state.sessions[longest_idle], Closing.TABLE_FULL)
    return Session(session_id, event.tenant, event.parent, side_of, Absent(), opened_at=ctx.now)


def _is_in_flight(ctx: Context, session: SessionId) -> bool:
    known = ctx.state.sessions.get(session)
    return known is not None and isinstance(known.phase, IN_FLIGHT)


def _ask_for(ctx: Context, session: Session, model: str) -> None:
    """Another model than before has no use for what was cached, nor for a replica that does not serve it."""
    if not model or model == session.model:
        return
    if session.model:
        session.line += 1
        session.evidence.clear()
        session.footprint_tokens = session.measured_tokens = 0
        session.beginning = ()
    ctx.state.ask_for(session, model)
    match session.phase:
        case Acting(home=str(home)) if not ctx.state.replicas[home].serves(model):
            interrupt(ctx, session, Interruption.MODEL)
        case Waiting(returns_to=str(home)) if not ctx.state.replicas[home].serves(model):
            interrupt_return(ctx, session, Interruption.MODEL)


def _update_main_line(ctx: Context, session: Session, event: TurnArrived) -> None:
    if event.kind is TurnKind.RESET:
        session.line += 1
        session.evidence.clear()
        session.footprint_tokens = event.prompt_tokens
        session.measured_tokens = 0
    else:
        session.footprint_tokens = max(session.footprint_tokens, event.prompt_tokens)
    if event.shared_prefix or event.kind is TurnKind.RESET:
        session.beginning = event.shared_prefix
    session.epoch += 1
    session.pinned = event.pinned
    session.urgency = event.urgency
    session.ended = False  # a released session that comes back goes on
    session.children.clear()
    match session.phase:
        case Acting(finished_at=None, tools=tools, since=since):
            ctx.tell(ToolEnded(ctx.now, session.id, session.tenant, tools, ctx.now - since))
        case Away(acting_since=float(since), tools=tools):
            ctx.tell(ToolEnded(ctx.now, session.id, session.tenant, tools, ctx.now - since))
    cover_leader(ctx, session)


def _choose(ctx: Context, session: Session, turn: Turn) -> Place | Hold:
    state = ctx.state
    phase, home_id = session.phase, session.home
    home = state.replicas[home_id] if home_id is not None else None
    if isinstance(phase, IN_FLIGHT):
        assert home is not None
        return _choose_beside(ctx, session, turn, home)
    if isinstance(phase, Waiting):
        return Hold("earlier turns of the session are held")
    if not state.eligible_replicas(session):
        return Hold("no replica that serves it is up")
    if home is None and is_oversize(ctx, session):
        roomiest = state.most_room(session.model)
        assert roomiest is not None
        return Place(roomiest.id, Reason.OVERSIZE)
    beside = state.sessions.get(session.side_of) if session.side_of is not None else None
    if beside is not None and beside.home is not None and _fits_beside(ctx, session, beside.home):
        return Place(beside.home, Reason.SIDE)
    return ctx.policy.place(state, session, turn, ctx.now)


def _choose_beside(ctx: Context, session: Session, turn: Turn, home: Replica) -> Place:
    """For a session with turns on the engine there is no holding: it has its admission already.

    Where nobody serves the model that it asks for now, its engine is the one to say so.
    """
    if home.state is ReplicaState.UP and not ctx.state.eligible_replicas(session):
        return Place(home.id, Reason.HOME)
    if home.state is ReplicaState.UP:
        answer = ctx.policy.place(ctx.state, session, turn, ctx.now)
        return Place(home.id, Reason.HOME) if isinstance(answer, Hold) else answer
    roomiest = ctx.state.most_room(session.model)
    return Place(roomiest.id if roomiest is not None else home.id, Reason.FORCED)


def _check_hold(ctx: Context, answer: object) -> None:
    """What is no `Place` must be a `Hold`: anything else from a policy would keep the turn although nobody said so."""
    if not isinstance(answer, Hold):
        raise PolicyAnswerError(ctx.policy.name, "place", answer, "a Place or a Hold")


def _fits_beside(ctx: Context, session: Session, replica_id: str) -> bool:
    replica = next((r for r in ctx.state.eligible_replicas(session) if r.id == replica_id), None)
    return replica is not None and fits(ctx, session, replica.id)


def _join_running(ctx: Context, session: Session, turn: Turn, replica_id: str, reason: Reason) -> None:
    state = ctx.state
    replica = state.replicas[replica_id]  # type: ignore[index]  # a ReplicaId by its source
    state.sessions.setdefault(session.id, session)
    match session.phase:
        case Running(turns=turns, replica=home) | Stopping(turns=turns, replica=home):
            state.enter(session, Running((*turns, turn.id), home), ctx.now)
        case _:
            if session.home != replica.id:
                admit(ctx, session, replica.id, reason)
            state.enter(session, Running((turn.id,), replica.id), ctx.now)
    dispatch(ctx, session, turn, replica.id, reason)


def _hold(ctx: Context, session: Session, turn: Turn, before: object) -> None:
    state = ctx.state
    if state.held_turns >= ctx.settings.held_turns_max:
        _turn_away(ctx, session, turn, before)
        return
    state.turns[turn.id] = turn
    state.sessions.setdefault(session.id, session)
    match session.phase:
        case Waiting(turns=turns, since=since, returns_to=returns_to):
            after = Waiting((*turns, turn.id), since, returns_to)
        case _:
            after = Waiting((turn.id,), ctx.now, _give_back(ctx, session))
    state.enter(session, after, ctx.now)
    ctx.tell(TurnHeld(ctx.now, session.id, turn.id))


def _give_back(ctx: Context, session: Session) -> ReplicaId | None:
    """A session that is held gives its admission back; where it has it again once weights are updated, or None."""
    home = session.home
    if home is None:
        return None
    ctx.state.ledger.release(session.id)
    if ctx.state.weights_until is not None:
        return home
    session.interrupts += 1  # the policy takes it back
    ctx.emit(InterruptSession(session.id, home, Interruption.RULE))
    return None


def _turn_away(ctx: Context, session: Session, turn: Turn, before: object) -> None:
    """The pool is full. A session that is turned away is back all the same: its tool has ended, which was told."""
    ctx.emit(RefuseTurn(turn.id, session.id, Refusal.POOL_FULL))
    match before:
        case Acting():
            after = Acting(before.tools, before.since, before.home, finished_at=before.finished_at or ctx.now)
            ctx.state.enter(session, after, ctx.now)
        case Away():
            ctx.state.enter(session, Away(ctx.now), ctx.now)
    ctx.state.heard_of(session, ctx.now)
