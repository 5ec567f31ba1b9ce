"""The phase of a session: a sum type, each with the data that is true in that phase and in no other.

Phases are immutable; a transition replaces one by another (`transitions.py` says which may follow which). A turn in
flight is a `Turn` record of the turn table; a phase names the turns that belong to it.
"""

from tao.core.commands import Closing
from tao.core.events import ToolCall
from tao.core.ids import ReplicaId, TurnId
from tao.values import value


@value
class Absent:
    """No such session: what the table calls the time before the first turn."""


@value
class Waiting:
    """Turns have arrived and are held; the session is in the waiting pool.

    `returns_to`: the replica whose admission it gave back only because weights are updated. Nobody else is admitted
    meanwhile, so at the end it has that admission again, before all others.
    """

    turns: tuple[TurnId, ...]
    since: float
    returns_to: ReplicaId | None = None


@value
class Running:
    """Turns are on the engine; at least one of them was not asked to stop. `replica` holds the admission."""

    turns: tuple[TurnId, ...]
    replica: ReplicaId


@value
class Stopping:
    """All turns on the engine were asked to stop and have not stopped yet."""

    turns: tuple[TurnId, ...]
    replica: ReplicaId


@value
class Acting:
    """A tool runs, or a human thinks: `tools` is empty when the last turn asked for none.

    `home`: the replica that holds the admission; None when the session was interrupted, and then it is in the waiting
    pool. `finished_at`: the tool was seen to end. `expected_at`: the tool interface promised a return, told at `told_at`.
    """

    tools: tuple[ToolCall, ...]
    since: float
    home: ReplicaId | None
    finished_at: float | None = None
    expected_at: float | None = None
    told_at: float | None = None


@value
class Away:
    """Nobody knows whether it comes back: its last turn did not finish, or its tool is overdue beyond belief.

    It holds no admission and is no candidate for one. What the caches hold of it stays known, in case it comes back
    within the idle bound. `tools` and `acting_since`: what it was away for, while that may still be running.
    """

    since: float
    tools: tuple[ToolCall, ...] = ()
    acting_since: float | None = None


@value
class Closed:
    """Over; the record is dropped at the end of the event that led here."""

    cause: Closing


IN_FLIGHT = (Running, Stopping)
"""Phases in which turns are on the engine. For `isinstance`: a tuple is tested faster than a union."""

BETWEEN_TURNS = (Acting, Away)
"""Phases in which no turn is there."""

Phase = Absent | Waiting | Running | Stopping | Acting | Away | Closed


def turns_of(phase: Absent | Phase) -> tuple[TurnId, ...]:
    """The turns that belong to the phase, held or on the engine; none where a tool runs."""
    match phase:
        case Waiting(turns=turns) | Running(turns=turns) | Stopping(turns=turns):
            return turns
    return ()
