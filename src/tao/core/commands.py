"""What to do. Commands are the only output of the core; a driver executes them in the order given.

Commands reserve, events settle: when a command is returned its effect is booked already, and the event that confirms or
undoes it comes back later. `AdmitSession`, `InterruptSession` and `CloseSession` need no action of a driver: they tell the
log, the metrics and the checkers what was decided.
"""

from enum import StrEnum

from tao.core.ids import PlanId, ReplicaId, SessionId, TurnId
from tao.core.plans import PlanRequest
from tao.values import value


class Reason(StrEnum):
    """Why a session is on a replica."""

    ROOM = "room"  # the pool was empty and there was room: admitted at once
    HOME = "home"  # it held its admission
    ROUTED = "routed"  # a policy that places each turn by itself
    PLANNED = "planned"  # a joint decision
    RULE = "rule"  # a policy's own rule, by its own count of what a replica can hold
    SIDE = "side"  # a side turn beside its admitted session
    FORCED = "forced"  # the bound on waiting was reached
    OVERSIZE = "oversize"  # larger than every replica: the engine shall say so
    PINNED = "pinned"  # the request refers to something that only this replica holds
    RETRY = "retry"  # a first replica failed before it answered
    MODEL = "model"  # the policy's choice does not serve the model that is asked for: the roomiest that does


UNGATED = frozenset(
    {
        Reason.HOME,
        Reason.ROUTED,
        Reason.RULE,
        Reason.SIDE,
        Reason.FORCED,
        Reason.OVERSIZE,
        Reason.PINNED,
        Reason.RETRY,
        Reason.MODEL,
    }
)
"""Reasons under which an admission may exceed the free capacity of its replica. Membership only, never iterated."""


class Refusal(StrEnum):
    """Why a turn is turned away."""

    POOL_FULL = "pool-full"
    NO_REPLICA = "no-replica"
    SHUTTING_DOWN = "shutting-down"
    REPLICA_FAILED = "replica-failed"
    SESSION_ENDED = "session-ended"


class Interruption(StrEnum):
    """Why an admission is released at a tool boundary."""

    OVERCOMMITTED = "overcommitted"
    LAPSED = "lapsed"  # overdue beyond belief; the session is Away, not in the waiting pool
    RULE = "rule"
    GAVE_WAY = "gave-way"  # at the end of its turn the policy did not let it keep its admission
    DRAINING = "draining"
    REPLICA_LOST = "replica-lost"
    MODEL = "model"  # the session asks for another model, which its replica does not serve


class Closing(StrEnum):
    """Why a session is forgotten."""

    ENDED = "ended"
    IDLE = "idle"
    REFUSED = "refused"
    CLIENT_LEFT = "client-left"
    TABLE_FULL = "table-full"
    SIDE_DONE = "side-done"


@value
class Command:
    """Base of all commands, for type annotations."""


@value
class DispatchTurn(Command):
    """Send a turn to a replica. `hold_seconds`: how long it was held. `attempt`: 1, or 2 for the retry."""

    turn: TurnId
    session: SessionId
    replica: ReplicaId
    reason: Reason
    hold_seconds: float
    attempt: int = 1


@value
class RefuseTurn(Command):
    """Answer the client with an error; the turn is over."""

    turn: TurnId
    session: SessionId
    cause: Refusal


@value
class StopTurn(Command):
    """Abort a dispatched turn on its engine; answer with `TurnStopped` when it is done."""

    turn: TurnId
    replica: ReplicaId


@value
class ComputePlan(Command):
    """Solve a joint decision off the event loop; answer with `PlanReady` or `PlanFailed`."""

    plan: PlanId
    request: PlanRequest


@value
class AdmitSession(Command):
    """The session holds `weight_tokens` of the replica's capacity from now on."""

    session: SessionId
    replica: ReplicaId
    reason: Reason
    weight_tokens: int


@value
class InterruptSession(Command):
    """The session lost its admission at a tool boundary; it is in the waiting pool, or Away when its return lapsed."""

    session: SessionId
    replica: ReplicaId
    reason: Interruption


@value
class CloseSession(Command):
    """The session is forgotten; nothing of it is booked any more."""

    session: SessionId
    cause: Closing
