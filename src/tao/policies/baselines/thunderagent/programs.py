"""Programs as the tick sees them: sessions of the view and shadows alike, with the budget arithmetic of a replica.

`used(B) = sum of tokens + b * programs`, `rem(B) = C - used(B)`. Admissions are booked with `tokens + b`, so that for
sessions the ledger's free tokens are `rem(B)`; shadows are on the policy's own books and come off beside them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Acting, Running, Stopping, Waiting
from tao.core.ports import View
from tao.core.session import Session
from tao.policies.baselines.thunderagent.idleness import IdleWeight
from tao.policies.baselines.thunderagent.shadows import Shadow, Shadows

BUFFER_TOKENS = 100
"""`b`: what each program costs beyond its tokens."""


class Group(IntEnum):
    """The order in which paused programs are considered."""

    REASONING = 0  # a request waits, and it is not the first
    FIRST_STEP = 1
    ACTING = 2


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be paused (`acting_since` set) or marked, or one that is paused and can be resumed."""

    id: SessionId
    tokens: int
    acting_since: float | None
    shadow: Shadow | None = None

    @property
    def need_tokens(self) -> int:
        """What it takes of a budget."""
        return self.tokens + BUFFER_TOKENS


def of_session(session: Session) -> Program:
    """A session as a program."""
    phase = session.phase
    return Program(session.id, session.live_tokens, phase.since if isinstance(phase, Acting) else None)


def of_shadow(shadow: Shadow) -> Program:
    """A shadow as a program."""
    return Program(shadow.id, shadow.tokens, shadow.acting_since, shadow)


def acting_on(view: View, shadows: Shadows, replica: ReplicaId) -> Iterator[Program]:
    """ACTING programs of the replica."""
    yield from map(of_session, view.acting_on(replica))
    yield from (of_shadow(s) for s in shadows.on(replica) if s.acting_since is not None)


def reasoning_on(view: View, replica: ReplicaId) -> Iterator[Program]:
    """Programs of the replica with a request in flight. REASONING shadows never end a request: marking them is idle."""
    for session in view.admitted_on(replica):
        if isinstance(session.phase, Running | Stopping):
            yield of_session(session)


def remaining_tokens(view: View, shadows: Shadows, replica: ReplicaId) -> int:
    """`rem(B)`: negative when the replica is over its budget."""
    return view.free_tokens(replica) - sum(of_shadow(shadow).need_tokens for shadow in shadows.on(replica))


def remaining_for_resume(
    view: View, shadows: Shadows, replica: ReplicaId, idle_weight: IdleWeight, at: float
) -> int:
    """`rem'(B)`: as `rem(B)`, with the tokens of ACTING programs weighed by how long they have been idle."""
    discount = sum(
        program.tokens * (1.0 - idle_weight.after(at - program.acting_since))
        for program in acting_on(view, shadows, replica)
        if program.acting_since is not None
    )
    return remaining_tokens(view, shadows, replica) + int(discount)


def group_of(session: Session) -> Group:
    """Steps count requests: the first one may wait or have just ended."""
    waiting = isinstance(session.phase, Waiting)
    steps = session.turns_finished + waiting
    if steps <= 1:
        return Group.FIRST_STEP
    return Group.REASONING if waiting else Group.ACTING
