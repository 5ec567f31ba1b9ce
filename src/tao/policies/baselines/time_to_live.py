"""The cost model of Progress-TTL (vLLM router, RFC 285): how long is an idle session's cache worth its room?

Pure formulas: the gaps between turns are taken as log-normal, a re-prefill costs what the fitted engine takes for it.
Constants are those of the RFC, fitted by its authors on their engine.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, exp, fsum, log, sqrt

TTL_SECONDS_MAX = 10.0
GRID_STEPS = 32
SPREAD_MIN = 1e-3
GAP_SECONDS_MIN = 1e-3


def prefill_seconds(tokens: int) -> float:
    """`0.0660 + 0.0570 x + 0.00441 x^2`, x in thousands of tokens."""
    x = tokens / 1000.0
    return 0.0660 + 0.0570 * x + 0.00441 * x * x


def prefill_impact_seconds(tokens: int) -> float:
    """What losing the context costs: its prefill, and the delay of others by it, less 15 %."""
    return prefill_seconds(tokens) * (2.0 - 0.15)


def decode_tokens_per_second(batch: int, context_tokens: int) -> float:
    """`B / (0.010635 + 0.000419 B + 1.42e-7 C)`, B turns in flight with C tokens of context in all."""
    return batch / (0.010635 + 0.000419 * batch + 1.42e-7 * context_tokens)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal duration: mean and standard deviation of the logarithm of its seconds."""

    mean: float
    spread: float

    @classmethod
    def fitted(cls, seconds: Sequence[float]) -> "LogNormal":
        """By the moments of the logarithms; at least one value."""
        logs = [log(max(value, GAP_SECONDS_MIN)) for value in seconds]
        mean = fsum(logs) / len(logs)
        return cls(mean, max(SPREAD_MIN, sqrt(fsum((value - mean) ** 2 for value in logs) / len(logs))))

    def share_below(self, seconds: float) -> float:
        """`P(T < d)`."""
        return _normal((log(seconds) - self.mean) / self.spread) if seconds > 0 else 0.0

    def mean_below(self, seconds: float) -> float:
        """`E[T; T < d]`, seconds: the part of the mean that lies below d."""
        if seconds <= 0:
            return 0.0
        whole = exp(self.mean + self.spread**2 / 2.0)
        return whole * _normal((log(seconds) - self.mean - self.spread**2) / self.spread)


def time_to_live_seconds(gaps: LogNormal, impact_seconds: float) -> float:
    """`argmax P(T < d) C - E[T; T < d] - d P(T >= d)` over `0 <= d <= min(10 s, C)`, on a grid of 32 steps."""
    most = min(TTL_SECONDS_MAX, impact_seconds)

    def gain(seconds: float) -> float:
        below = gaps.share_below(seconds)
        return below * impact_seconds - gaps.mean_below(seconds) - seconds * (1.0 - below)

    return max((most * step / GRID_STEPS for step in range(GRID_STEPS + 1)), key=gain)


class GapHistory:
    """The last `gaps_max` gaps between turns, of all sessions, and the distribution fitted to them."""

    def __init__(self, gaps_max: int = 100) -> None:
        self._seconds: deque[float] = deque(maxlen=gaps_max)
        self._fitted: LogNormal | None = None

    def add(self, seconds: float) -> None:
        """A session was away for so long."""
        self._seconds.append(seconds)
        self._fitted = None

    def distribution(self) -> LogNormal | None:
        """None before the first gap."""
        if self._fitted is None and self._seconds:
            self._fitted = LogNormal.fitted(self._seconds)
        return self._fitted


def _normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))
