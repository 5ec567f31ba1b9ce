"""The engines get other weights while the gateway runs (reinforcement learning): hold, then begin afresh.

Between the two events nothing is dispatched; turns on the engines go on. Afterwards every cache is worth nothing, since
it was computed with the old weights, but sessions that came back meanwhile have the admissions that they had. An update
whose end is never told ends at its deadline.
"""

from tao.core.admission import place, place_if_oversize
from tao.core.commands import Reason
from tao.core.context import Context
from tao.core.events import WeightsUpdateBegan, WeightsUpdateEnded
from tao.core.facts import ReplicaChanged
from tao.core.membership import void_evidence
from tao.core.phases import Waiting
from tao.core.session import Session


def weights_update_began(ctx: Context, event: WeightsUpdateBegan) -> None:
    """Hold what comes; once more, the deadline moves."""
    ctx.state.weights_until = event.until
    _note(ctx)


def weights_update_ended(ctx: Context, event: WeightsUpdateEnded) -> None:
    """Go on with what waits."""
    if ctx.state.weights_until is None:
        ctx.ignore(event)
        return
    end_weights_update(ctx)


def end_weights_update(ctx: Context) -> None:
    """Nothing that was cached counts any more; bounds on waiting count from now."""
    ctx.state.weights_until = None
    ctx.state.dispatching_since = ctx.now
    for replica in ctx.state.replicas:
        void_evidence(ctx, replica)
    _note(ctx)
    for session_id in tuple(ctx.state.holding):
        session = ctx.state.sessions[session_id]
        _return(ctx, session)
        place_if_oversize(ctx, session)


def _return(ctx: Context, session: Session) -> None:
    """Who came back to its admission meanwhile has it again before anybody else: nobody was admitted since."""
    match session.phase:
        case Waiting(returns_to=str(replica)):
            place(ctx, session, replica, Reason.HOME)


def _note(ctx: Context) -> None:
    ctx.state.note_replicas(ctx.now)
    for replica in ctx.state.replicas:
        ctx.tell(ReplicaChanged(ctx.now, replica))
