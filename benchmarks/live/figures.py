"""Medians with confidence intervals, and how they are written. Numbers in, numbers and text out.

Repeats are few and their spread is not normal, so the interval of a median is taken between order statistics: it makes
no assumption about the distribution (e.g. H. A. David, Order Statistics, section 7.1).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

COVERAGE_MIN = 0.90


@dataclass(frozen=True, slots=True)
class Median:
    """A median and an interval that covers the true one with probability `coverage`; of `count` values.

    Below five values no interval covers 90 %: it then spans all values, and `coverage` says how little that means.
    """

    value: float
    low: float
    high: float
    coverage: float
    count: int

    def __format__(self, form: str) -> str:
        if self.count == 1:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def coverage(count: int, rank: int) -> float:
    """Probability that the true median lies between the `rank`-th smallest and the `rank`-th largest of `count`."""
    below = sum(math.comb(count, k) for k in range(rank))
    return 1.0 - 2.0 * below / 2.0**count


def median(values: Sequence[float]) -> Median:
    """The median and the narrowest interval that covers it with at least 90 %. ValueError without a value."""
    if not values:
        raise ValueError("a median needs a value")
    ordered = sorted(values)
    count = len(ordered)
    rank = 1
    while rank < count // 2 and coverage(count, rank + 1) >= COVERAGE_MIN:
        rank += 1
    covered = max(coverage(count, rank), 0.0)
    return Median(statistics.median(ordered), ordered[rank - 1], ordered[count - rank], covered, count)


def fraction(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratios of values that were measured side by side."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
