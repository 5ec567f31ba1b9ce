"""Replicas join, change, drain, die, restart empty and leave.

What dies is the belief in a cache and the admissions of sessions whose tools run. Turns on a lost replica are left alone:
each ends by an event of its own, which its driver owes.
"""

from tao.core.admission import interrupt, interrupt_return, place_if_oversize
from tao.core.commands import Interruption
from tao.core.context import Context
from tao.core.events import (
    CacheFlushed,
    CapacityChanged,
    ModelsChanged,
    ReplicaDraining,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
)
from tao.core.facts import CacheVoided, ReplicaChanged
from tao.core.ids import ReplicaId
from tao.core.session import Replica, ReplicaState


def replica_joined(ctx: Context, event: ReplicaJoined) -> None:
    """New, back from the dead, or no longer draining."""
    replica = ctx.state.replicas.get(event.replica)
    if replica is None:
        replica = ctx.state.replicas[event.replica] = Replica(event.replica, event.capacity_tokens)
    replica.capacity_tokens = event.capacity_tokens
    replica.slots = event.slots
    replica.models = event.models
    replica.removed = False
    _set_state(ctx, replica, ReplicaState.UP)


def capacity_changed(ctx: Context, event: CapacityChanged) -> None:
    """The engine restarted with other settings, or its real size became known."""
    replica = ctx.state.replicas[event.replica]
    replica.capacity_tokens = event.capacity_tokens
    ctx.state.note_replicas(ctx.now)
    _tell_changed(ctx, replica)


def models_changed(ctx: Context, event: ModelsChanged) -> None:
    """Sessions whose model is gone from here ask for another replica with their next turn."""
    replica = ctx.state.replicas[event.replica]
    replica.models = event.models
    ctx.state.note_replicas(ctx.now)
    for session in list(ctx.state.acting_on(replica.id)):
        if not replica.serves(session.model):
            interrupt(ctx, session, Interruption.MODEL)
    for session in ctx.state.returning_to(replica.id):
        if not replica.serves(session.model):
            interrupt_return(ctx, session, Interruption.MODEL)
    _tell_changed(ctx, replica)


def replica_draining(ctx: Context, event: ReplicaDraining) -> None:
    """Running turns finish; sessions whose tools run will restart elsewhere."""
    replica = ctx.state.replicas[event.replica]
    if replica.state is not ReplicaState.UP:
        ctx.ignore(event)
        return
    _set_state(ctx, replica, ReplicaState.DRAINING)
    _interrupt_all(ctx, replica, Interruption.DRAINING)


def replica_lost(ctx: Context, event: ReplicaLost) -> None:
    """Its cache is gone, and with it every admission that no running turn needs."""
    _lose(ctx, ctx.state.replicas[event.replica])


def replica_removed(ctx: Context, event: ReplicaRemoved) -> None:
    """As lost, and forgotten as soon as its last turn has ended."""
    replica = ctx.state.replicas[event.replica]
    replica.removed = True
    _lose(ctx, replica)
    ctx.state.forget_removed()


def cache_flushed(ctx: Context, event: CacheFlushed) -> None:
    """All evidence on this replica is void at once."""
    void_evidence(ctx, event.replica)


def void_evidence(ctx: Context, replica: ReplicaId) -> None:
    """Forget what the replica's cache was believed to hold."""
    for session in ctx.state.sessions.values():
        if session.evidence.pop(replica, None) is not None:
            session.epoch += 1
    ctx.tell(CacheVoided(ctx.now, replica))


def _lose(ctx: Context, replica: Replica) -> None:
    _set_state(ctx, replica, ReplicaState.DOWN)
    replica.cache_rate = 1.0
    void_evidence(ctx, replica.id)
    _interrupt_all(ctx, replica, Interruption.REPLICA_LOST)


def _interrupt_all(ctx: Context, replica: Replica, reason: Interruption) -> None:
    for session in ctx.state.acting_on(replica.id):
        interrupt(ctx, session, reason)
    for session in ctx.state.returning_to(replica.id):
        interrupt_return(ctx, session, reason)


def _set_state(ctx: Context, replica: Replica, state: ReplicaState) -> None:
    replica.state = state
    ctx.state.note_replicas(ctx.now)
    _tell_changed(ctx, replica)


def _tell_changed(ctx: Context, replica: Replica) -> None:
    ctx.tell(ReplicaChanged(ctx.now, replica.id))
    for session_id in list(ctx.state.holding):
        place_if_oversize(ctx, ctx.state.sessions[session_id])
