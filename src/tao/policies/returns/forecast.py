"""Forecasts of durations: a point, a histogram, one that starts after a literal sleep, the latest of several.

Also what follows from any forecast once some time has passed. Pure arithmetic; it must not know tools or histories.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tao.policies.returns.bins import BIN_COUNT, UPPER_SECONDS, bin_of, lower_seconds
from tao.policies.returns.pooling import survival_after
from tao.policies.returns.port import Forecast

CONSERVATIVE_LEVEL = 0.8
EXHAUSTED_LEVEL = 0.99


def remaining_seconds(forecast: Forecast, level: float, elapsed_seconds: float) -> float:
    """Quantile of the time that is left, given that the absence has lasted `elapsed_seconds`; 0 when overdue."""
    survival = forecast.survival(elapsed_seconds)
    if survival <= 0.0:
        return 0.0
    return max(0.0, forecast.quantile(1.0 - (1.0 - level) * survival) - elapsed_seconds)


def chance_within(forecast: Forecast, elapsed_seconds: float, horizon_seconds: float) -> float:
    """The chance that the absence ends within the horizon, given that it has lasted `elapsed_seconds` (the hazard for
    a horizon of one second); 0 where the forecast knows nothing more.
    """
    survival = forecast.survival(elapsed_seconds)
    if survival <= 0.0:
        return 0.0
    return 1.0 - forecast.survival(elapsed_seconds + horizon_seconds) / survival


@dataclass(frozen=True, slots=True)
class PointForecast:
    """One duration and no doubt."""

    duration_seconds: float
    source: str

    @property
    def conservative_seconds(self) -> float:
        return self.duration_seconds

    @property
    def exhausted_seconds(self) -> float:
        return self.duration_seconds

    def survival(self, elapsed_seconds: float) -> float:
        return 1.0 if elapsed_seconds < self.duration_seconds else 0.0

    def quantile(self, level: float) -> float:  # noqa: ARG002
        return self.duration_seconds

    def interval(self, level: float) -> tuple[float, float]:  # noqa: ARG002
        return self.duration_seconds, self.duration_seconds


class Widening(Protocol):
    """Knows how wide intervals must be to hold what they claim."""

    def widened(self, level: float) -> float:
        """The nominal level, 0 to 1, that has covered `level` of the calls."""


class HistogramForecast:
    """A distribution over the bins of `bins`, linear in time within a bin.

    `layers`: what `pooling.survival_after` takes; they are pooled when the first question comes. `limit_seconds`: who would
    last longer ends there. `widening` turns the nominal level of an interval into the one that holds the truth so often, as
    far as is known when the interval is asked for; an interval ends at edges of bins.
    """

    __slots__ = ("_cumulative_of", "_layers", "_limit_seconds", "_widening", "source")

    def __init__(
        self,
        layers: Sequence[tuple[int, float]],
        source: str,
        widening: Widening | None = None,
        limit_seconds: float | None = None,
    ) -> None:
        self._layers = layers
        self._limit_seconds = limit_seconds
        self._widening = widening
        self._cumulative_of: list[float] = []
        self.source = source

    @property
    def _cumulative(self) -> list[float]:
        """The chance to be over by the end of each bin."""
        if not self._cumulative_of:
            self._cumulative_of = [1.0 - left for left in survival_after(self._layers, self._limit_seconds)]
            self._layers = ()
        return self._cumulative_of

    @property
    def conservative_seconds(self) -> float:
        return self.quantile(CONSERVATIVE_LEVEL)

    @property
    def exhausted_seconds(self) -> float:
        return self.quantile(EXHAUSTED_LEVEL)

    def survival(self, elapsed_seconds: float) -> float:
        if elapsed_seconds <= 0.0:
            return 1.0
        index, cumulative = bin_of(elapsed_seconds), self._cumulative
        below = cumulative[index - 1] if index else 0.0
        lower = lower_seconds(index)
        share = min(1.0, (elapsed_seconds - lower) / (UPPER_SECONDS[index] - lower))
        return 1.0 - below - share * (cumulative[index] - below)

    def quantile(self, level: float) -> float:
        index, cumulative = self._bin_at(level), self._cumulative
        below = cumulative[index - 1] if index else 0.0
        lower = lower_seconds(index)
        share = (level - below) / (cumulative[index] - below)
        return lower + min(1.0, max(0.0, share)) * (UPPER_SECONDS[index] - lower)

    def interval(self, level: float) -> tuple[float, float]:
        central = level if self._widening is None else self._widening.widened(level)
        first, last = self._bin_at(0.5 - central / 2.0), self._bin_at(0.5 + central / 2.0)
        return lower_seconds(first), UPPER_SECONDS[last]

    def surprise(self, duration_seconds: float) -> float:
        """The least nominal level of a central interval that holds the bin of this duration, 0 to 1."""
        index, cumulative = bin_of(duration_seconds), self._cumulative
        below = cumulative[index - 1] if index else 0.0
        return max(0.0, 1.0 - 2.0 * cumulative[index], 2.0 * below - 1.0)

    def masses_beyond(self, elapsed_seconds: float) -> list[float]:
        """Chance of each bin, given that the absence lasts longer than this; they sum to 1."""
        first, cumulative = bin_of(elapsed_seconds), self._cumulative
        floor = cumulative[first - 1] if first else 0.0
        beyond = 1.0 - floor
        masses = [0.0] * BIN_COUNT
        for index in range(first, BIN_COUNT):
            masses[index] = (cumulative[index] - floor) / beyond
            floor = cumulative[index]
        return masses

    def _bin_at(self, level: float) -> int:
        return min(bisect_left(self._cumulative, level), BIN_COUNT - 1)


@dataclass(frozen=True, slots=True)
class DelayedForecast:
    """What `forecast` says, counted from the end of a literal sleep of `delay_seconds`."""

    forecast: Forecast
    delay_seconds: float
    source: str = "sleep"

    @property
    def conservative_seconds(self) -> float:
        return self.delay_seconds + self.forecast.conservative_seconds

    @property
    def exhausted_seconds(self) -> float:
        return self.delay_seconds + self.forecast.exhausted_seconds

    def survival(self, elapsed_seconds: float) -> float:
        return self.forecast.survival(elapsed_seconds - self.delay_seconds)

    def quantile(self, level: float) -> float:
        return self.delay_seconds + self.forecast.quantile(level)

    def interval(self, level: float) -> tuple[float, float]:
        low, high = self.forecast.interval(level)
        return self.delay_seconds + low, self.delay_seconds + high


@dataclass(frozen=True, slots=True)
class LatestForecast:
    """Tools that run side by side: the session is back when the last of them ends.

    They are taken to be slow or fast together, since they share a machine and often a kind; then every quantile is the
    largest of theirs.
    """

    forecasts: tuple[Forecast, ...]

    @property
    def source(self) -> str:
        return max(self.forecasts, key=lambda f: f.quantile(0.5)).source

    @property
    def conservative_seconds(self) -> float:
        return max(f.conservative_seconds for f in self.forecasts)

    @property
    def exhausted_seconds(self) -> float:
        return max(f.exhausted_seconds for f in self.forecasts)

    def survival(self, elapsed_seconds: float) -> float:
        return max(f.survival(elapsed_seconds) for f in self.forecasts)

    def quantile(self, level: float) -> float:
        return max(f.quantile(level) for f in self.forecasts)

    def interval(self, level: float) -> tuple[float, float]:
        bounds = [f.interval(level) for f in self.forecasts]
        return max(low for low, _ in bounds), max(high for _, high in bounds)
