"""A dispatched turn makes progress: its first token, then its growing output, which its reservation follows."""

from tao.core.admission import book_extra, cover_leader
from tao.core.context import Context
from tao.core.events import FirstToken, TurnProgress


def first_token(ctx: Context, event: FirstToken) -> None:
    """Prefill is over; a repeated first token is late."""
    turn = ctx.state.turns[event.turn]
    if turn.first_token_at is not None:
        ctx.ignore(event)
        return
    turn.first_token_at = ctx.now


def turn_progress(ctx: Context, event: TurnProgress) -> None:
    """The output only grows; a smaller count is late."""
    turn = ctx.state.turns[event.turn]
    if event.output_tokens < turn.output_tokens:
        ctx.ignore(event)
        return
    turn.output_tokens = event.output_tokens
    if turn.leads:
        cover_leader(ctx, ctx.state.sessions[turn.session])
    else:
        book_extra(ctx, turn)
