"""How well credit foretells: the share of a prefix that was expected to be left, against the share that was found.

Several ways to expect are compared on the same returns. The calibration error is the mean distance, over ten bins of the
expected share and weighted by returns, between what was expected and what was found on average: 0 for a forecast that is
right on average whatever it says. It must not know where an expectation comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

BINS = 10


@dataclass(slots=True)
class Bin:
    """Returns whose expected share was in one tenth of 0 to 1."""

    returns: int = 0
    expected: float = 0.0
    found: float = 0.0


@dataclass(slots=True)
class Calibration:
    """Of one way to expect. Tokens are those of the prefixes left behind."""

    returns: int = 0
    prefix_tokens: int = 0
    error_tokens: float = 0.0
    squared_error: float = 0.0
    bins: list[Bin] = field(default_factory=lambda: [Bin() for _ in range(BINS)])

    def add(self, prefix_tokens: int, expected: float, found: float) -> None:
        """One return; shares from 0 to 1."""
        self.returns += 1
        self.prefix_tokens += prefix_tokens
        self.error_tokens += abs(expected - found) * prefix_tokens
        self.squared_error += (expected - found) ** 2
        tenth = self.bins[min(BINS - 1, int(expected * BINS))]
        tenth.returns += 1
        tenth.expected += expected
        tenth.found += found

    @property
    def calibration_error(self) -> float:
        """Between 0 and 1; 0 before the first return."""
        return sum(abs(b.expected - b.found) for b in self.bins) / max(1, self.returns)

    @property
    def mean_squared_error(self) -> float:
        """Of the shares (the Brier score, for shares that are 0 or 1)."""
        return self.squared_error / max(1, self.returns)

    @property
    def mean_error(self) -> float:
        """Mean absolute error, as a share of the tokens that were left behind."""
        return self.error_tokens / max(1, self.prefix_tokens)


class CreditCalibration:
    """All ways to expect, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Calibration] = {}

    def returned(self, prefix_tokens: int, expected: Mapping[str, float], found: float) -> None:
        """A session came back to a replica where it had left so many tokens."""
        for name, share in expected.items():
            known = self.by_name.get(name)
            if known is None:
                known = self.by_name[name] = Calibration()
            known.add(prefix_tokens, share, found)

    def shown(self) -> dict[str, object]:
        """As JSON-ready data."""
        return {
            name: {
                "returns": known.returns,
                "prefix_tokens": known.prefix_tokens,
                "calibration_error": round(known.calibration_error, 4),
                "mean_squared_error": round(known.mean_squared_error, 4),
                "mean_error": round(known.mean_error, 4),
                "reliability": [
                    [round(b.expected / b.returns, 3), round(b.found / b.returns, 3), b.returns]
                    for b in known.bins
                    if b.returns
                ],
            }
            for name, known in self.by_name.items()
        }
