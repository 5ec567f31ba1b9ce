"""The engines get other weights while the gateway runs (reinforcement learning): hold, then begin afresh.

Between the two events nothing is dispatched; turns on the engines go on. Afterwards every cache is worth nothing, since
it was computed with the old weights. An update whose end is never told ends at its deadline.
"""

from tao.core.context import Context
from tao.core.events import WeightsUpdateBegan, WeightsUpdateEnded
from tao.core.facts import ReplicaChanged
from tao.core.membership import void_evidence


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
    """Nothing that was cached counts any more, and bounds on waiting count from now."""
    ctx.state.weights_until = None
    ctx.state.dispatching_since = ctx.now
    for replica in ctx.state.replicas:
        void_evidence(ctx, replica)
    _note(ctx)


def _note(ctx: Context) -> None:
    ctx.state.note_replicas(ctx.now)
    for replica in ctx.state.replicas:
        ctx.tell(ReplicaChanged(ctx.now, replica))
