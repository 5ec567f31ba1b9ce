"""Histograms at several levels made one distribution, bin by bin: each level speaks where it has seen calls last so long.

In each bin the chance to end there, for a call that has lasted until there (the hazard), is `(ends + k * h) / (lasting +
k)`: of the calls that this level has seen last until the bin so many ended in it; `h` is the hazard of the level above, and
counts like `k` calls (a beta-Stacy process at each level). So the few calls of a session decide about its usual seconds,
and all calls together about minutes that the session has never seen.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from tao.policies.returns.bins import TAIL_MASSES, bin_of
from tao.policies.returns.sketch import unpacked


def survival_after(layers: Sequence[tuple[int, float]], limit_seconds: float | None) -> list[float]:
    """The chance to last longer than each bin, by bin; the last is 0.

    `layers`: packed histogram (`sketch.packed`) and strength k of what the layers after it say, in the histogram's unit;
    the most particular first. The last is the most general; its strength is not used. Who would last longer than
    `limit_seconds` ends there; only the tail stays, since tools may be slow to die.
    """
    *others, (root, _) = layers
    weight = sum(unpacked(root))
    ends = [count / weight + tail for count, tail in zip(unpacked(root), TAIL_MASSES, strict=True)]
    hazards = [count / lasting for count, lasting in zip(ends, _not_before(ends), strict=True)]
    for whole, strength in reversed(others):
        counts = unpacked(whole)
        hazards = [
            (count + strength * hazard) / (lasting + strength)
            for count, hazard, lasting in zip(counts, hazards, _not_before(counts), strict=True)
        ]
    hazards[-1] = 1.0
    left = list(accumulate((1.0 - hazard for hazard in hazards), mul))
    if limit_seconds is not None:
        last = bin_of(limit_seconds)
        beyond = [*_not_before(TAIL_MASSES)[1:], 0.0]
        left[last:] = map(min, left[last:], beyond[last:])
    return left


def _not_before(masses: Sequence[float]) -> list[float]:
    """Of each bin: the sum of it and of all after it."""
    return list(accumulate(reversed(masses)))[::-1]
