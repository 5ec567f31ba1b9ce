"""A turn or a session ends: settle what was booked, learn what the cache holds, and move the session on.

`_settle` takes a turn off the books exactly once; `_move_on` then finds the session's next phase. Whatever ends a turn
(finished, failed, stopped) passes through both.
"""

from dataclasses import replace

from tao.core.admission import (
    admit,
    close,
    cover_leader,
    dispatch,
    interrupt,
    is_main_line,
    leave_pool_unserved,
    rebook,
)
from tao.core.commands import (
    Closing,
    Interruption,
    InterruptSession,
    Reason,
    Refusal,
    RefuseTurn,
    StopTurn,
)
from tao.core.context import Context
from tao.core.events import (
    ClientLeft,
    Event,
    SessionEnded,
    TurnFailed,
    TurnFinished,
    TurnStopped,
    Usage,
)
from tao.core.facts import ToolStarted, TurnSettled
from tao.core.phases import IN_FLIGHT, Acting, Away, Running, Stopping, Waiting
from tao.core.session import CacheEvidence, EvidenceSource, ReplicaState, Session, Turn
from tao.core.tool_phase import child_ended
from tao.core.transitions import check_row

CACHE_RATE_MOMENTUM = 0.1
"""Weight of the newest observation in a replica's learned cache rate."""

SHRUNK_SHARE = 0.8
"""A measured prompt below this share of the line's context means that the history was cut: compaction nobody told of."""


def turn_finished(ctx: Context, event: TurnFinished) -> None:
    """The response is complete: usage corrects the footprint, and the prefix is in the replica's cache."""
    turn = ctx.state.turns[event.turn]
    session = ctx.state.sessions[turn.session]
    session.turns_finished += 1
    if is_main_line(turn, session):
        _correct_footprint(session, turn, event.usage)
        session.tools = (*session.tools, *event.tools)
        context_tokens = turn.live_tokens if event.usage is None else _context_tokens(event.usage)
        _learn_cache(ctx, session, turn, context_tokens, event.usage)
    _settle(ctx, session, turn, event.usage, finished=True)
    _move_on(ctx, session, event)


def turn_failed(ctx: Context, event: TurnFailed) -> None:
    """The engine refused or broke off; where nothing was sent yet, another replica gets one try."""
    turn = ctx.state.turns[event.turn]
    session = ctx.state.sessions[turn.session]
    if event.retryable and not turn.stopping:
        other = ctx.state.most_room(turn.model, but=turn.replica)
        if turn.attempt == 1 and other is not None and not ctx.shutting_down:
            _retry(ctx, session, turn, event)
            return
        ctx.emit(RefuseTurn(turn.id, session.id, Refusal.REPLICA_FAILED))
    _settle(ctx, session, turn, None, finished=False)
    _move_on(ctx, session, event)


def turn_stopped(ctx: Context, event: TurnStopped) -> None:
    """The engine has let go of a turn that was asked to stop (or that its driver gave up)."""
    turn = ctx.state.turns[event.turn]
    session = ctx.state.sessions[turn.session]
    if turn.first_token_at is not None and is_main_line(turn, session):
        # Its prompt was prefilled before it stopped.
        _learn_cache(ctx, session, turn, turn.prompt_tokens, None)
    _settle(ctx, session, turn, None, finished=False)
    _move_on(ctx, session, event)


def client_left(ctx: Context, event: ClientLeft) -> None:
    """A held turn is over at once; a dispatched one is asked to stop and keeps its reservation until it has."""
    turn = ctx.state.turns[event.turn]
    session = ctx.state.sessions[turn.session]
    before = session.phase
    if isinstance(before, Waiting):
        del ctx.state.turns[turn.id]
        rest = tuple(held for held in before.turns if held != turn.id)
        ctx.state.enter(session, Waiting(rest, before.since, before.returns_to), ctx.now)
        if not rest:
            leave_pool_unserved(ctx, session, Closing.CLIENT_LEFT)
    else:
        assert isinstance(before, Running), session
        assert turn.replica is not None
        if turn.stopping:
            ctx.ignore(event)
            return
        turn.stopping = True
        ctx.emit(StopTurn(turn.id, turn.replica))
        _enter_in_flight(ctx, session, before.turns, before.replica)
    check_row(before, ClientLeft, session.phase)


def session_ended(ctx: Context, event: SessionEnded) -> None:
    """Released by the client: held turns are turned away, running ones finish first."""
    session = ctx.state.sessions[event.session]
    before = session.phase
    match before:
        case Waiting(turns=turns):
            for turn in turns:
                del ctx.state.turns[turn]
                ctx.emit(RefuseTurn(turn, session.id, Refusal.SESSION_ENDED))
            ctx.state.enter(session, Waiting((), before.since), ctx.now)
            close(ctx, session, Closing.ENDED)
        case Acting() | Away():
            close(ctx, session, Closing.ENDED)
        case _:
            session.ended = True
    check_row(before, SessionEnded, session.phase)


def _correct_footprint(session: Session, turn: Turn, usage: Usage | None) -> None:
    """Usage is the truth; the largest measured context of the line counts, since its prompts extend one another.

    Beside the leading turn an earlier one tells nothing of how much the later context is too large or too small.
    """
    if usage is None:
        session.footprint_tokens = max(session.footprint_tokens, turn.live_tokens)
        return
    if turn.leads and usage.prompt_tokens < SHRUNK_SHARE * session.measured_tokens:
        session.line += 1
        session.evidence.clear()
        session.measured_tokens = 0
    session.measured_tokens = max(session.measured_tokens, _context_tokens(usage))
    if turn.leads:
        session.footprint_tokens = session.measured_tokens
    else:
        session.footprint_tokens = max(session.footprint_tokens, session.measured_tokens)
    for replica, evidence in session.evidence.items():
        if evidence.tokens > session.footprint_tokens:
            session.evidence[replica] = replace(evidence, tokens=session.footprint_tokens)


def _context_tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.output_tokens


def _learn_cache(ctx: Context, session: Session, turn: Turn, tokens: int, usage: Usage | None) -> None:
    """After a turn its prompt and output are in the replica's cache (method, section 3).

    Where the engine reports cached tokens its cache is known to work; otherwise the estimate is scaled by the learned
    cache rate of the replica. What a turn computed with weights of before an update is worth nothing after it.
    """
    assert turn.replica is not None
    replica = ctx.state.replicas[turn.replica]
    if replica.state is ReplicaState.DOWN or (turn.dispatched_at or 0.0) < ctx.state.dispatching_since:
        return
    if usage is not None and usage.cached_tokens is not None:
        expected = session.evidence.get(replica.id)
        if expected is not None and _could_find(turn, usage, expected):
            share = min(1.0, usage.cached_tokens / expected.tokens)
            replica.cache_rate += CACHE_RATE_MOMENTUM * (share - replica.cache_rate)
        source = EvidenceSource.CACHED_TOKENS
    else:
        tokens = round(tokens * replica.cache_rate)
        source = EvidenceSource.OWN_ACCOUNTING
    session.evidence[replica.id] = CacheEvidence(min(tokens, session.footprint_tokens), ctx.now, source)


def _could_find(turn: Turn, usage: Usage, expected: CacheEvidence) -> bool:
    """Whether the turn asked for what was expected: not where that was told or left there while it ran, nor where a short
    turn beside the leading one has another context.
    """
    told_before = expected.at <= (turn.dispatched_at or 0.0)
    return told_before and expected.tokens > 0 and usage.prompt_tokens >= SHRUNK_SHARE * expected.tokens


def _release_turn(ctx: Context, session: Session, turn: Turn) -> None:
    assert turn.replica is not None
    ctx.state.ledger.release_extra(turn.id)
    ctx.state.replicas[turn.replica].turns_in_flight -= 1
    turn.leads = False
    cover_leader(ctx, session)


def _settle(ctx: Context, session: Session, turn: Turn, usage: Usage | None, *, finished: bool) -> None:
    """Take a turn off the books and tell the policy."""
    assert turn.replica is not None
    _release_turn(ctx, session, turn)
    del ctx.state.turns[turn.id]
    ctx.tell(
        TurnSettled(
            ctx.now,
            session.id,
            turn.id,
            turn.replica,
            turn.kind,
            turn.prompt_tokens if usage is None else usage.prompt_tokens,
            turn.output_tokens if usage is None else usage.output_tokens,
            None if usage is None else usage.cached_tokens,
            finished,
        )
    )


def _move_on(ctx: Context, session: Session, event: TurnFinished | TurnFailed | TurnStopped) -> None:
    """The session's phase after one of its turns ended."""
    before = session.phase
    assert isinstance(before, IN_FLIGHT), session
    turns = before.turns
    rest = () if len(turns) == 1 else tuple(turn for turn in turns if turn != event.turn)
    if rest:
        _enter_in_flight(ctx, session, rest, before.replica)
    elif session.side_of is not None or session.ended:
        close(ctx, session, Closing.SIDE_DONE if session.side_of is not None else Closing.ENDED)
    elif isinstance(event, TurnFinished):
        _act(ctx, session, before)
    else:
        # The client has gone, or was told of a failure: nothing runs that it would come back from.
        session.tools = ()
        ctx.state.ledger.release(session.id)
        ctx.state.enter(session, Away(ctx.now), ctx.now)
        child_ended(ctx, session)
    check_row(before, type(event), session.phase)
    ctx.state.forget_removed()


def _enter_in_flight(ctx: Context, session: Session, turns: tuple[str, ...], replica: str) -> None:
    """Running while one of the turns goes on, Stopping when all were asked to stop."""
    records = ctx.state.turns
    all_stopping = all(records[turn].stopping for turn in turns)  # type: ignore[index]
    kind = Stopping if all_stopping else Running
    ctx.state.enter(session, kind(turns, replica), ctx.now)  # type: ignore[arg-type]


def _act(ctx: Context, session: Session, before: Running | Stopping) -> None:
    """The last turn in flight has ended: the tools run. The admission is kept, given back or lost."""
    tools, session.tools = session.tools, ()
    replica = ctx.state.replicas[before.replica]
    keeps = ctx.policy.keeps_admission(ctx.state, session, ctx.now)
    ctx.state.enter(session, Acting(tools, ctx.now, replica.id if keeps else None), ctx.now)
    ctx.tell(ToolStarted(ctx.now, session.id, session.tenant, tools))
    if not tools:
        child_ended(ctx, session)  # a sub-agent that asks for no tool has answered its parent
    if not keeps:
        ctx.state.ledger.release(session.id)
        if keeps is not None:  # the policy knows without being told
            session.interrupts += 1
            ctx.emit(InterruptSession(session.id, replica.id, Interruption.GAVE_WAY))
    elif replica.state is ReplicaState.UP:
        rebook(ctx, session)
    else:
        down = replica.state is ReplicaState.DOWN
        interrupt(ctx, session, Interruption.REPLICA_LOST if down else Interruption.DRAINING)


def _retry(ctx: Context, session: Session, turn: Turn, event: Event) -> None:
    """Dispatch the turn again on the UP replica with most room, other than the one that failed."""
    before = session.phase
    assert isinstance(before, Running | Stopping), session
    other = ctx.state.most_room(turn.model, but=turn.replica)
    assert other is not None
    _release_turn(ctx, session, turn)
    turn.output_tokens = 0
    turn.first_token_at = None
    home = before.replica
    if before.turns == (turn.id,):
        home = other.id
        if before.replica != other.id:
            admit(ctx, session, other.id, Reason.RETRY)
    ctx.state.enter(session, Running(before.turns, home), ctx.now)
    dispatch(ctx, session, turn, other.id, Reason.RETRY)
    ctx.state.forget_removed()
    check_row(before, type(event), session.phase)
