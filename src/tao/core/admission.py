"""Giving a session a replica and taking it away: admit, dispatch, interrupt, refuse, close.

These are the moves that handlers and decisions are made of. Each leaves the state consistent and says what it did by
commands and facts. The only arithmetic on capacity is in the ledger.
"""

from tao.core.commands import (
    AdmitSession,
    CloseSession,
    Closing,
    DispatchTurn,
    Interruption,
    InterruptSession,
    Reason,
    Refusal,
    RefuseTurn,
)
from tao.core.context import Context
from tao.core.events import TurnKind
from tao.core.facts import SessionClosed, SessionInterrupted, SessionLapsed, TurnDispatched
from tao.core.ids import ReplicaId
from tao.core.ledger import Reservation
from tao.core.phases import IN_FLIGHT, Acting, Away, Closed, Running, Waiting
from tao.core.ports import PolicyAnswerError
from tao.core.session import Placement, Session, Turn
from tao.core.tool_phase import child_ended
from tao.core.transitions import Expired, Interrupted, Lapsed, Placed, Refused, check_row


def admit(ctx: Context, session: Session, replica: ReplicaId, reason: Reason) -> None:
    """Book the session's weight on the replica. The caller enters the phase that goes with it."""
    ledger, booked = ctx.state.ledger, _reservation(ctx, session, replica)
    weight_tokens = ledger.added_tokens(session.id, booked)
    ledger.admit(session.id, booked)
    session.placement = Placement(ctx.now, replica, reason)
    ctx.emit(AdmitSession(session.id, replica, reason, weight_tokens))


def rebook(ctx: Context, session: Session) -> None:
    """Bring the reservation of an admitted session up to its present weight."""
    held = ctx.state.ledger.admission(session.id)
    if held is not None:
        booked = _reservation(ctx, session, held.replica)
        if booked.tokens != held.tokens or booked.shared != held.shared:
            ctx.state.ledger.admit(session.id, booked)


def _reservation(ctx: Context, session: Session, replica: ReplicaId) -> Reservation:
    """The session's weight there, with what of it is shared: nothing where a policy books less than the shared part."""
    weight_tokens = _weight_tokens(ctx, session)
    shared = ctx.policy.shared_prefix(session)
    if shared and sum(piece.tokens for piece in shared) > weight_tokens:
        shared = ()
    return Reservation(replica, weight_tokens, shared)


def _weight_tokens(ctx: Context, session: Session) -> int:
    """The policy's own figure, and nothing that would spoil the sums of the ledger for good."""
    answer: object = ctx.policy.weight_tokens(session)
    if isinstance(answer, int) and answer >= 0:
        return answer
    raise PolicyAnswerError(ctx.policy.name, "weight_tokens", answer, "an int of at least 0")


def cover_leader(ctx: Context, session: Session) -> None:
    """Let the admission cover the main-line turn in flight: context and output so far, whatever the footprint says."""
    _cover(ctx, session, _leader(ctx, session))


def dispatch(ctx: Context, session: Session, turn: Turn, replica: ReplicaId, reason: Reason) -> None:
    """Send one turn of an admitted session. What its admission does not cover is booked beside it."""
    state = ctx.state
    turn.replica = replica
    turn.dispatched_at = ctx.now
    turn.attempt += 1
    if turn.attempt == 1:
        turn.held_seconds = ctx.now - turn.arrived_at
    state.replicas[replica].turns_in_flight += 1
    admission = state.ledger.admission(session.id)
    assert admission is not None, session
    leader = _leader(ctx, session)
    if leader is None and turn.line == session.line and admission.replica == replica:
        turn.leads = True
        leader = turn
    else:
        turn.leads = False
        book_extra(ctx, turn)
    _cover(ctx, session, leader)
    ctx.emit(DispatchTurn(turn.id, session.id, replica, reason, turn.held_seconds, turn.attempt))
    ctx.tell(TurnDispatched(ctx.now, session.id, turn.id, replica, turn.prompt_tokens))


def book_extra(ctx: Context, turn: Turn) -> None:
    """Book what a turn holds beside its session's admission: its tokens so far."""
    assert turn.replica is not None
    ctx.state.ledger.book_extra(turn.id, Reservation(turn.replica, turn.live_tokens))


def place(ctx: Context, session: Session, replica: ReplicaId, reason: Reason) -> None:
    """Give a session of the waiting pool a replica: its held turns go out; a tool that still runs has a home again."""
    before = session.phase
    replica, reason = allowed(ctx, session, replica, reason)
    admit(ctx, session, replica, reason)
    match before:
        case Waiting(turns=turns):
            ctx.state.enter(session, Running(turns, replica), ctx.now)
            for turn_id in turns:
                turn = ctx.state.turns[turn_id]
                dispatch(ctx, session, turn, _serving(ctx, turn.model, replica), reason)
        case Acting(home=None):
            after = Acting(
                before.tools, before.since, replica, before.finished_at, before.expected_at, before.told_at
            )
            ctx.state.enter(session, after, ctx.now)
        case _:
            raise AssertionError(f"{session.id} is not in the waiting pool: {before!r}")
    check_row(before, Placed, session.phase)


def allowed(ctx: Context, session: Session, replica: ReplicaId, reason: Reason) -> tuple[ReplicaId, Reason]:
    """Where a session really goes: a pin counts more than any choice, and what does not serve its model is no choice."""
    pinned = ctx.state.pinned_or(session, replica)
    if pinned != replica:
        return pinned, Reason.PINNED
    serving = _serving(ctx, session.model, replica)
    return (replica, reason) if serving == replica else (serving, Reason.MODEL)


def _serving(ctx: Context, model: str, replica: ReplicaId) -> ReplicaId:
    """The replica itself, or the roomiest that serves the model where it does not and another one does."""
    if ctx.state.replicas[replica].serves(model):
        return replica
    other = ctx.state.most_room(model)
    return replica if other is None else other.id


def needed_tokens(ctx: Context, session: Session) -> int:
    """What placing a session of the pool books where it shares nothing: its weight, and beside it the held turns that the
    weight does not cover.
    """
    return _weight_tokens(ctx, session) + ctx.state.beside_tokens(session)


def fits(ctx: Context, session: Session, replica: ReplicaId) -> bool:
    """Whether a session without admission fits the free capacity of the replica; others may hold a part of it already."""
    added_tokens = ctx.state.ledger.added_tokens(session.id, _reservation(ctx, session, replica))
    return added_tokens + ctx.state.beside_tokens(session) <= ctx.state.free_tokens(replica)


def is_oversize(ctx: Context, session: Session) -> bool:
    """Whether no replica that serves the session could hold it even if it were empty: no decision will find room for it."""
    largest_tokens = ctx.state.serving.largest_capacity_tokens(session.model)
    return largest_tokens is not None and needed_tokens(ctx, session) > largest_tokens


def place_if_oversize(ctx: Context, session: Session) -> None:
    """A held session that has become too large for every replica goes to the engine, which says so itself."""
    roomiest = ctx.state.most_room(session.model)
    if roomiest is not None and isinstance(session.phase, Waiting) and is_oversize(ctx, session):
        place(ctx, session, roomiest.id, Reason.OVERSIZE)


def interrupt(ctx: Context, session: Session, reason: Interruption) -> None:
    """Release the admission of a session whose tool runs; it joins the waiting pool."""
    before = session.phase
    assert isinstance(before, Acting), session
    assert before.home is not None, session
    ctx.state.ledger.release(session.id)
    after = Acting(before.tools, before.since, None, before.finished_at, before.expected_at, before.told_at)
    ctx.state.enter(session, after, ctx.now)
    session.interrupts += 1
    ctx.emit(InterruptSession(session.id, before.home, reason))
    ctx.tell(SessionInterrupted(ctx.now, session.id, before.home))
    check_row(before, Interrupted, after)


def interrupt_return(ctx: Context, session: Session, reason: Interruption) -> None:
    """A held session whose admission was to come back with the new weights has lost it: it waits as all others do."""
    before = session.phase
    assert isinstance(before, Waiting), session
    assert before.returns_to is not None, session
    after = Waiting(before.turns, before.since)
    ctx.state.enter(session, after, ctx.now)
    session.interrupts += 1
    ctx.emit(InterruptSession(session.id, before.returns_to, reason))
    ctx.tell(SessionInterrupted(ctx.now, session.id, before.returns_to))
    check_row(before, Interrupted, after)


def lapse(ctx: Context, session: Session) -> None:
    """Give up on a session whose tool is overdue beyond belief: it holds nothing and waits for nothing."""
    before = session.phase
    assert isinstance(before, Acting), session
    ctx.state.ledger.release(session.id)
    acting_since = before.since if before.finished_at is None else None
    ctx.state.enter(session, Away(ctx.now, before.tools, acting_since), ctx.now)
    if before.home is not None:
        session.interrupts += 1
        ctx.emit(InterruptSession(session.id, before.home, Interruption.LAPSED))
    ctx.tell(SessionLapsed(ctx.now, session.id, session.tenant))
    check_row(before, Lapsed, session.phase)


def refuse_held(ctx: Context, session: Session, cause: Refusal) -> None:
    """Turn away all held turns of a session. One that has a history stays known; a new one is forgotten."""
    before = session.phase
    assert isinstance(before, Waiting), session
    for turn in before.turns:
        del ctx.state.turns[turn]
        ctx.emit(RefuseTurn(turn, session.id, cause))
    leave_pool_unserved(ctx, session, Closing.REFUSED)
    check_row(before, Refused, session.phase)


def leave_pool_unserved(ctx: Context, session: Session, cause: Closing) -> None:
    """No turn is held any more: a session known from earlier turns is away, a new one is over."""
    if session.turns_finished and session.side_of is None:
        ctx.state.enter(session, Away(ctx.now), ctx.now)
    else:
        close(ctx, session, cause)


def expire(ctx: Context, session: Session, cause: Closing) -> None:
    """Forget an acting or away session that was idle too long or has to make room."""
    before = session.phase
    close(ctx, session, cause)
    check_row(before, Expired, session.phase)


def close(ctx: Context, session: Session, cause: Closing) -> None:
    """Forget a session that has no turn in flight."""
    ctx.state.ledger.release(session.id)
    ctx.state.enter(session, Closed(cause), ctx.now)
    del ctx.state.sessions[session.id]
    ctx.emit(CloseSession(session.id, cause))
    ctx.tell(SessionClosed(ctx.now, session.id, session.tenant, told=cause is Closing.ENDED))
    child_ended(ctx, session)


def _leader(ctx: Context, session: Session) -> Turn | None:
    """The turn in flight that the session's admission covers; at most one is."""
    phase = session.phase
    if isinstance(phase, IN_FLIGHT):
        turns = ctx.state.turns
        for turn_id in phase.turns:
            turn = turns[turn_id]
            if turn.leads:
                return turn
    return None


def _cover(ctx: Context, session: Session, leader: Turn | None) -> None:
    growing_tokens = 0 if leader is None else leader.live_tokens - session.footprint_tokens
    session.growing_tokens = growing_tokens if growing_tokens > 0 else 0  # noqa: FURB136 - twice as fast as max
    rebook(ctx, session)


def is_main_line(turn: Turn, session: Session) -> bool:
    """Whether the turn's end says something of the session's present main line."""
    return turn.line == session.line and (turn.kind is not TurnKind.SIDE or session.side_of is not None)
