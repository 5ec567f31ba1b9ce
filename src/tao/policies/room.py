"""How much of a replica's free capacity is offered to sessions of the waiting pool.

Sessions grow turn by turn. What is filled to the brim overflows a moment later, and each overflow interrupts somebody; room
that is left at admission is worth more than what it could have held. It must not know who waits.
"""

from dataclasses import dataclass
from typing import Protocol

from tao.core.ports import View
from tao.core.session import Replica


class AdmissionRoom(Protocol):
    """Offers capacity for admissions."""

    def offered_tokens(self, view: View, replica: Replica) -> int:
        """Tokens of the replica that admissions may take now, not negative."""

    def reserve_tokens(self, replica: Replica) -> int:
        """Tokens of the replica that are left for those admitted to grow."""


class WholeCapacity:
    """The paper's rule: all that is free."""

    def reserve_tokens(self, replica: Replica) -> int:  # noqa: ARG002
        return 0

    def offered_tokens(self, view: View, replica: Replica) -> int:
        return max(0, view.free_tokens(replica.id))


@dataclass(frozen=True, slots=True)
class GrowthRoom:
    """All that is free but a share of the capacity, which is left for those that are admitted already.

    An empty replica offers everything, so that a session which fits it at all is never held for the room's sake.
    """

    share: float = 0.1

    def reserve_tokens(self, replica: Replica) -> int:
        return round(self.share * replica.capacity_tokens)

    def offered_tokens(self, view: View, replica: Replica) -> int:
        free_tokens = view.free_tokens(replica.id)
        if free_tokens == replica.capacity_tokens:
            return free_tokens
        return max(0, free_tokens - self.reserve_tokens(replica))
