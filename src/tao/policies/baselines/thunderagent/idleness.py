"""What the context of a program whose tool runs still weighs when room is sought for others."""

from dataclasses import dataclass
from math import exp2
from typing import Protocol


class IdleWeight(Protocol):
    """Weight of an ACTING program's tokens on the resume side; the pause side always counts them in full."""

    def after(self, idle_seconds: float) -> float:
        """The weight, 0 to 1, of a program that has been ACTING so long."""


@dataclass(frozen=True, slots=True)
class FullWeight:
    """No decay: ThunderAgent's default."""

    def after(self, idle_seconds: float) -> float:  # noqa: ARG002
        return 1.0


@dataclass(frozen=True, slots=True)
class HalvingWeight:
    """`2 ** (-idle_seconds / half_life_seconds)`: ThunderAgent's decay has a half-life of 1 s."""

    half_life_seconds: float = 1.0

    def after(self, idle_seconds: float) -> float:
        return exp2(-max(0.0, idle_seconds) / self.half_life_seconds)
