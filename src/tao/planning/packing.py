"""A score as one int64: the radix form that lets the dynamic programme compare whole values in one instruction.

Lexicographic order is kept exactly because each radix exceeds the largest sum its coordinate can reach. Where the
sum does not fit in 63 bits the tie-break is dropped first; if that is not enough, there is no packed form.
"""

from dataclasses import dataclass

import numpy as np

from tao.planning.bounds import coordinate_bound
from tao.planning.instance import Instance, Ints

PACKED_MAX = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """`values` (n, m): priority, credit, readiness, footprint and, if `has_ties`, the tie, as one integer each."""

    values: Ints
    has_ties: bool


def pack(instance: Instance) -> Packed | None:
    """Pack each pair's value, or None if the largest sum does not fit."""
    ones: Ints = instance.eligible.astype(np.int64)
    priority = instance.priority[:, None] * ones
    ceilings = [
        min(int(instance.priority.sum()), coordinate_bound(instance, priority)),
        *(coordinate_bound(instance, values) for values in instance.values),
    ]
    placed = coordinate_bound(instance, ones)
    tie_radix = (placed + 1) ** 2
    triple = 1
    for ceiling in ceilings:
        triple *= ceiling + 1
    if triple > PACKED_MAX:
        return None
    packed: Ints = priority
    for ceiling, values in zip(ceilings[1:], instance.values, strict=True):
        packed = packed * (ceiling + 1) + values
    if triple * tie_radix > PACKED_MAX:
        return Packed(packed, has_ties=False)
    ties: Ints = np.where(instance.ties() == 1, 1, -placed)
    return Packed(packed * tie_radix + ties * ones, has_ties=True)
