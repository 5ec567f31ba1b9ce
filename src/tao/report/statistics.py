"""Means with confidence intervals over seeds, and paired comparisons. Numbers in, numbers out.

Seeds are few, so intervals use Student's t. They say how far a figure depends on the order of sessions, and nothing of
how far the engine model is from an engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# Student's t at 97.5 %, by degrees of freedom; beyond the table the normal value is close enough.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NORMAL_975 = 1.960


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and the half-width of its 95 % confidence interval; None for the latter with fewer than two values."""

    mean: float
    half_width: float | None
    count: int

    @property
    def low(self) -> float:
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half_width or 0.0)


class Verdict(StrEnum):
    """How a policy compares in one cell."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy against another in one cell: relative difference, paired by seed (0.1 is 10 % more)."""

    difference: Estimate
    verdict: Verdict


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and 95 % interval; None without a value."""
    count = len(values)
    if not count:
        return None
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean, _t(count - 1) * math.sqrt(variance / count), count)


def compare(ours: Sequence[float], theirs: Sequence[float], *, less_is_better: bool) -> Comparison | None:
    """Paired by position: relative differences `(ours - theirs) / theirs`; None where nothing can be compared.

    A win or a loss needs an interval that leaves out zero; with a single seed there is none, and all is a tie.
    """
    pairs = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if other]
    difference = estimate([(mine - other) / other for mine, other in pairs])
    if difference is None:
        return None
    if difference.half_width is None or difference.low <= 0.0 <= difference.high:
        return Comparison(difference, Verdict.TIE)
    better = (difference.mean < 0.0) == less_is_better
    return Comparison(difference, Verdict.WIN if better else Verdict.LOSS)


def _t(degrees: int) -> float:
    return T_975[degrees - 1] if degrees <= len(T_975) else NORMAL_975
