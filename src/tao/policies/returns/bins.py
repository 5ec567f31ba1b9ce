"""The bins of every histogram of durations: fixed and log-spaced, so that any two can be added.

Bin 0 is below a millisecond; eight bins a decade follow up to 15 hours; the last bin holds what is longer. Tables of
constants, made once; nothing here changes.
"""

from math import log10

BIN_COUNT = 64
BINS_A_DECADE = 8
LEAST_SECONDS = 0.001

UPPER_SECONDS: tuple[float, ...] = (
    *(LEAST_SECONDS * pow(10.0, index / BINS_A_DECADE) for index in range(BIN_COUNT - 1)),
    1e5,
)
"""The upper edge of each bin; the last one is open, and this stands for it."""


TAIL_MASSES: tuple[float, ...] = tuple(1e-4 * min(1.0, 1.0 / upper) for upper in UPPER_SECONDS)
"""In every forecast, for each unit of weight: some chance is left however long it takes. Past a second it falls as one over
the time, so that who has been away longer than anybody before is expected to take as long again.
"""


def bin_of(seconds: float) -> int:
    """The bin that holds a duration; negative ones count as 0."""
    if seconds < LEAST_SECONDS:
        return 0
    index = 1 + int(BINS_A_DECADE * log10(seconds / LEAST_SECONDS) + 1e-9)
    return index if index < BIN_COUNT else BIN_COUNT - 1


def lower_seconds(index: int) -> float:
    """The lower edge of a bin."""
    return UPPER_SECONDS[index - 1] if index else 0.0
