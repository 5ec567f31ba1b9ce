"""Who is interrupted when the reservations on a replica exceed its capacity (method, section 1).

Only sessions whose tools run are candidates; turns on the engine grow past the capacity if they must. Who was placed by
force gives way within the reserve for growth already.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from tao.core.commands import Reason
from tao.core.ids import SessionId
from tao.core.phases import Acting
from tao.core.ports import View
from tao.core.session import Replica, Session
from tao.policies.credit import Credit
from tao.policies.readiness import Readiness


class InterruptOrder(Protocol):
    """Sorts the candidates: the smallest key is interrupted first."""

    def key(self, session: Session, at: float) -> tuple[int, ...]:
        """Sort key; equal keys are ordered by session id."""


class LeastValueFirst:
    """The paper's order: the same triple that admits a session protects it."""

    def __init__(self, credit: Credit, readiness: Readiness) -> None:
        self._credit = credit
        self._readiness = readiness

    def key(self, session: Session, at: float) -> tuple[int, ...]:
        assert session.home is not None, session
        credit_tokens = self._credit.tokens(session, at).get(session.home, 0)
        return credit_tokens, self._readiness.ready(session, at), session.footprint_tokens


class LongestAwayFirst:
    """The least credit first; among equals who was placed by force, then who is to be away longest, then the smallest.

    The place of who is away does the most good for others meanwhile. Credits of the same power of two are equal, and so are
    times: finer differences mean nothing, and would leave what follows no say. Who is back or expected within half a second
    is not away.
    """

    def __init__(self, credit: Credit, readiness: Readiness) -> None:
        self._credit = credit
        self._readiness = readiness

    def key(self, session: Session, at: float) -> tuple[int, ...]:
        assert session.home is not None, session
        credit_tokens = self._credit.tokens(session, at).get(session.home, 0)
        ready = self._readiness.ready(session, at)
        away_seconds = 0 if ready else round(self._readiness.away_seconds(session, at))
        return (
            credit_tokens.bit_length(),
            not was_forced(session),
            -away_seconds.bit_length(),
            session.footprint_tokens,
        )


class SmallestFirst:
    """ThunderAgent's order: the smallest context is the cheapest to compute again."""

    def key(self, session: Session, at: float) -> tuple[int, ...]:  # noqa: ARG002
        return (session.footprint_tokens,)


def was_forced(session: Session) -> bool:
    """Whether the session's present place was given to it by the bound on waiting, and not by a decision."""
    return session.placement is not None and session.placement.reason is Reason.FORCED


def overcommitted_interrupts(
    view: View,
    reserve_tokens: Callable[[Replica], int],
    order: InterruptOrder,
    at: float,
) -> list[SessionId]:
    """The fewest candidates, in order, that bring each replica's reservations back to its capacity. What several of them
    begin with is free again only when the last of those who share it gives way.

    While somebody waits, those placed by force give way until the reserve for growth is free again, as long as they are
    first in order: otherwise each would push out, over time, somebody whom a decision had placed, who would then wait, be
    placed by force, and push out the next.
    """
    chosen: list[SessionId] = []
    for replica in view.up_replicas():
        free_tokens = view.free_tokens(replica.id)
        reserved_tokens = reserve_tokens(replica) if view.waiting_sessions else 0
        if free_tokens >= reserved_tokens:
            continue
        acting = list(view.acting_on(replica.id))
        if free_tokens >= 0 and not any(map(was_forced, acting)):
            continue
        acting.sort(key=lambda session: (order.key(session, at), session.id))
        freed_tokens = view.freed_tokens(replica.id, [session.id for session in acting])
        for session, tokens in zip(acting, freed_tokens, strict=True):
            if free_tokens >= (reserved_tokens if was_forced(session) else 0):
                break
            chosen.append(session.id)
            free_tokens += tokens
    return chosen


class Lease(Protocol):
    """How long the absence of a session is believed in: until then it keeps its place, or its place in the pool."""

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        """Acting sessions to give up on."""


class NoLease:
    """The paper's rule: who is away is expected back, however long it takes, until the idle bound."""

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()


class LeaseWhileExpected:
    """A session whose return is overdue beyond belief gives way as soon as somebody waits.

    Clients do not say when a session is over; without this, those that have vanished would hold others back until the
    idle bound. Belief outlasts an expected return by seconds, so it is enough to look once every `period_seconds`.
    """

    def __init__(self, readiness: Readiness, period_seconds: float = 1.0) -> None:
        self._readiness = readiness
        self._period_seconds = period_seconds
        self._looked_at = -inf

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        if at < self._looked_at + self._period_seconds:
            return ()
        self._looked_at = at
        pool = [view.sessions[session] for session in view.pool]
        away = [session for session in pool if isinstance(session.phase, Acting)]
        if view.waiting_sessions:
            away += [session for replica in view.up_replicas() for session in view.acting_on(replica.id)]
        return [session.id for session in away if self._readiness.lapsed(session, at)]
