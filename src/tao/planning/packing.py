"""Scores as int64: the radix form that lets a solver compare whole values in one instruction.

The coordinates of a score are levels, the most important first. Neighbouring levels are packed into one integer per
pair as long as the largest sum fits in 62 bits; the radix of a level exceeds the largest sum that it can reach, so
lexicographic order is kept exactly. What does not fit becomes a further group, to be maximised after the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tao.planning.bounds import coordinate_bound
from tao.planning.instance import Instance, Ints
from tao.planning.problem import Triple

PACKED_MAX = 2**62
TRIPLE_LEVELS = 4
"""Priority and the three coordinates of the triple; the tie-break is the fifth level."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One coordinate: `values` (n, m), and what their sum over any assignment lies between."""

    values: Ints
    least: int
    most: int

    @property
    def radix(self) -> int:
        return self.most - self.least + 1


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Neighbouring levels as one integer for each pair: `values` (n, m) is `sum(level * multiplier)`."""

    levels: tuple[Level, ...]
    multipliers: tuple[int, ...]
    values: Ints

    def ceilings(self, bound: int, reached: Sequence[int]) -> list[int]:
        """Upper bounds of the levels, from an upper `bound` of the packed sum.

        The bound of a level holds among assignments that match `reached` in the levels before it; it says no more
        than `Level.most` once an earlier level is not known to have reached its own bound.
        """
        result: list[int] = []
        rest = bound
        for at, (level, multiplier) in enumerate(zip(self.levels, self.multipliers, strict=True)):
            lower = zip(self.levels[at + 1 :], self.multipliers[at + 1 :], strict=True)
            ceiling = (rest - sum(later.least * m for later, m in lower)) // multiplier
            result.append(min(ceiling, level.most))
            if ceiling != reached[at]:
                result += [later.most for later in self.levels[at + 1 :]]
                break
            rest -= ceiling * multiplier
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """All levels of an instance in as few groups as fit; computed once for an instance, and shared."""

    levels: tuple[Level, ...]
    groups: tuple[Group, ...]

    @property
    def triple(self) -> Group | None:
        """The first group, where it holds at least priority and the whole triple."""
        first = self.groups[0]
        return first if len(first.levels) >= TRIPLE_LEVELS else None

    @property
    def bound(self) -> Triple:
        """The cheap upper bound of each coordinate (`tao.planning.bounds.cheap_bound`)."""
        return Triple(*(level.most for level in self.levels[1:TRIPLE_LEVELS]))


def levels(instance: Instance) -> tuple[Level, ...]:
    """Priority, credit, readiness, footprint, tie."""
    ones: Ints = instance.eligible.astype(np.int64)
    placed = coordinate_bound(instance, ones)
    priority: Ints = instance.priority[:, None] * ones
    leading = min(int(instance.priority.sum()), coordinate_bound(instance, priority))
    ties: Ints = np.where(instance.ties() == 1, 1, -placed) * ones
    return (
        Level(priority, 0, leading),
        *(Level(values, 0, coordinate_bound(instance, values)) for values in instance.values),
        Level(ties, -placed * placed, placed),
    )


def pack(instance: Instance) -> Packing:
    groups: list[Group] = []
    pending: list[Level] = []
    size = 1
    every = levels(instance)
    for level in every:
        if pending and size * level.radix > PACKED_MAX:
            groups.append(_group(pending))
            pending, size = [], 1
        pending.append(level)
        size *= level.radix
    return Packing(every, (*groups, _group(pending)))


def _group(members: list[Level]) -> Group:
    multipliers = [1]
    for level in reversed(members[1:]):
        multipliers.append(multipliers[-1] * level.radix)
    multipliers.reverse()
    values = np.zeros_like(members[0].values)
    for level, multiplier in zip(members, multipliers, strict=True):
        values += level.values * multiplier
    return Group(tuple(members), tuple(multipliers), values)
