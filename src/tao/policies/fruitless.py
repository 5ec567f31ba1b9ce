"""A decision that placed nobody need not be computed again until something could make the next one place somebody.

Past the knee most of what happens (a turn grows, a tool ends) changes nothing for those who wait: the same sessions, no
more room. What is remembered here is one decision; values do not matter, since no value makes room.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tao.core.events import PlanReady
from tao.core.ids import ReplicaId, SessionId

PROVED = "optimal"


@dataclass(frozen=True, slots=True)
class Question:
    """What decides whether anybody can be placed: who waits with what weight, who has waited too long, and the room."""

    weights: Mapping[SessionId, tuple[int, bool]]
    free_tokens: Mapping[ReplicaId, int]

    def is_no_easier_than(self, earlier: "Question") -> bool:
        """The same sessions, and nowhere more room.

        With less room everywhere fewer fit, also where the roomiest replica is kept for the oldest: of the others the
        roomiest has no more than the roomiest of the others had.
        """
        return (
            self.weights == earlier.weights
            and self.free_tokens.keys() == earlier.free_tokens.keys()
            and all(free <= earlier.free_tokens[replica] for replica, free in self.free_tokens.items())
        )


class FruitlessDecision:
    """Remembers the last decision, if it was proved that it can place nobody.

    Where a candidate may not go everywhere there is no question to remember: that another replica is kept for the oldest
    may let it in.
    """

    def __init__(self) -> None:
        self._asked: Question | None = None
        self._fruitless: Question | None = None

    def would_come_again(self, question: Question | None) -> bool:
        """Whether nobody can be placed, as nobody could the last time; else the question is taken for the last one."""
        known = self._fruitless
        if known is not None and question is not None and question.is_no_easier_than(known):
            return True
        self._asked, self._fruitless = question, None
        return False

    def answered(self, plan: PlanReady) -> None:
        """The plan for the last question has come."""
        if not plan.assignments and plan.status == PROVED:
            self._fruitless = self._asked
