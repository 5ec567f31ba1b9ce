"""Hints of urgency, made harmless: they order the sessions of one tenant among themselves, and only where nothing else does.

A session's rank is its place among its own tenant's sessions, the urgent ones first. Every tenant has one session of each
rank, so no hint, forged or not, gets a session ahead of another tenant's; and ranks only decide between candidates of equal
worth. It must not know planners.
"""

from collections.abc import Mapping, Sequence
from math import inf

from tao.core.ids import SessionId
from tao.core.session import Session


def ranks_of(sessions: Sequence[Session]) -> Mapping[SessionId, int]:
    """The rank of each session, from 0; empty where no hint says anything. Among equals the order given decides."""
    if all(session.urgency is None for session in sessions):
        return {}
    by_tenant: dict[str, list[Session]] = {}
    for session in sessions:
        by_tenant.setdefault(session.tenant, []).append(session)
    ranks: dict[SessionId, int] = {}
    for own in by_tenant.values():
        for rank, session in enumerate(sorted(own, key=_urgency)):
            ranks[session.id] = rank
    return ranks


def _urgency(session: Session) -> tuple[int, float]:
    """Larger priority first, then the earlier deadline."""
    said = session.urgency
    if said is None:
        return 0, inf
    return -said.priority, inf if said.deadline_at is None else said.deadline_at
