"""A watched cache: an engine whose KV events tell block by block what is left of each session.

What is watched needs no belief: it holds until the next event says otherwise. Once the watch is lost, the last that was
told is evidence like any other, and ages. Here a figure is never above the session's own tokens, whoever tells it.
"""

from dataclasses import replace

from tao.core.context import Context
from tao.core.events import CacheWatchLost, PrefixObserved
from tao.core.facts import CacheUnwatched
from tao.core.session import CacheEvidence, EvidenceSource, ReplicaState


def prefix_observed(ctx: Context, event: PrefixObserved) -> None:
    """The engine told what its cache holds of a session: stronger than anything believed before."""
    session = ctx.state.sessions.get(event.session)
    if session is None or ctx.state.replicas[event.replica].state is ReplicaState.DOWN:
        ctx.ignore(event)
        return
    tokens = min(event.tokens, session.footprint_tokens)
    before = session.evidence.get(event.replica)
    if before is None and not tokens:
        return
    if before is None or (before.tokens, before.source) != (tokens, EvidenceSource.KV_EVENTS):
        session.epoch += 1  # a plan that counted on another figure is stale
    if tokens:
        session.evidence[event.replica] = CacheEvidence(tokens, ctx.now, EvidenceSource.KV_EVENTS)
    else:
        del session.evidence[event.replica]


def cache_watch_lost(ctx: Context, event: CacheWatchLost) -> None:
    """What was told last was true until now; from now on it is a memory."""
    sessions = ctx.state.sessions
    named = sessions.get(event.session) if event.session is not None else None
    unwatched = []
    for session in sessions.values() if event.session is None else filter(None, (named,)):
        known = session.evidence.get(event.replica)
        if known is not None and known.source is EvidenceSource.KV_EVENTS:
            memory = replace(known, at=ctx.now, source=EvidenceSource.CACHED_TOKENS)
            session.evidence[event.replica] = memory
            unwatched.append(session.id)
    if unwatched:
        ctx.tell(CacheUnwatched(ctx.now, event.replica, tuple(unwatched)))
