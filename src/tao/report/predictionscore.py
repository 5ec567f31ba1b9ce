"""Sums that judge forecasts of durations: errors, pinball loss, coverage, and readiness as a classifier.

Readiness is judged at the decision moments: each second of a call from its start. The truth at such a moment is whether the
call ends within the horizon. Precision at a given recall comes from a histogram of the chances that were told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tao.policies.returns import Forecast, chance_within, remaining_seconds

PINBALL_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
INTERVAL_LEVELS = {"50": 0.5, "80": 0.8, "95": 0.95}
HALF_SECOND = 0.5
CHANCE_STEPS = 1000


@dataclass(slots=True)
class Score:
    """Add calls and moments, then read the figures. Every figure of nothing is 0."""

    calls: int = 0
    moments: int = 0
    _error: float = 0.0
    _moment_error: float = 0.0
    _within: int = 0
    _pinball: float = 0.0
    _covered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INTERVAL_LEVELS, 0))
    _ready_right: int = 0
    _ready: int = 0
    _due: int = 0
    _led: int = 0
    _lead: float = 0.0
    _chances: tuple[list[int], list[int]] = field(
        default_factory=lambda: ([0] * (CHANCE_STEPS + 1), [0] * (CHANCE_STEPS + 1))
    )

    def add_call(self, forecast: Forecast, duration_seconds: float) -> None:
        """A call of this duration was forecast at its start. The point that is judged is the median."""
        error = abs(forecast.quantile(0.5) - duration_seconds)
        self.calls += 1
        self._error += error
        self._within += error <= HALF_SECOND
        for level in PINBALL_LEVELS:
            miss = duration_seconds - forecast.quantile(level)
            self._pinball += max(level * miss, (level - 1.0) * miss) / len(PINBALL_LEVELS)
        for name, level in INTERVAL_LEVELS.items():
            low, high = forecast.interval(level)
            self._covered[name] += low <= duration_seconds <= high

    def add_moment(
        self, forecast: Forecast, elapsed: float, duration_seconds: float, ready: bool, horizon: float
    ) -> None:
        """`ready`: what the rule said at this moment."""
        left = duration_seconds - elapsed
        due = left <= horizon
        self.moments += 1
        self._moment_error += abs(remaining_seconds(forecast, 0.5, elapsed) - left)
        self._ready += ready
        self._due += due
        self._ready_right += ready and due
        chance = chance_within(forecast, elapsed, horizon)
        self._chances[due][round(chance * CHANCE_STEPS)] += 1

    def add_lead(self, seconds: float) -> None:
        """The rule first said ready so long before the return."""
        self._led += 1
        self._lead += seconds

    @property
    def mean_absolute_error_seconds(self) -> float:
        return self._error / max(1, self.calls)

    @property
    def within_half_second(self) -> float:
        return self._within / max(1, self.calls)

    @property
    def lead_seconds(self) -> float:
        """How long before the return a call was first called ready, mean over the calls that were."""
        return self._lead / max(1, self._led)

    @property
    def decision_error_seconds(self) -> float:
        """Mean absolute error of the remaining time over the decision moments."""
        return self._moment_error / max(1, self.moments)

    @property
    def pinball_loss_seconds(self) -> float:
        return self._pinball / max(1, self.calls)

    @property
    def precision(self) -> float:
        return self._ready_right / max(1, self._ready)

    @property
    def recall(self) -> float:
        return self._ready_right / max(1, self._due)

    @property
    def coverage(self) -> Mapping[str, float]:
        return {name: covered / max(1, self.calls) for name, covered in self._covered.items()}

    def precision_at(self, recall: float) -> float:
        """Precision of "the chance is at least c" for the largest c that reaches this recall."""
        not_due, due = self._chances
        right = wrong = 0
        for step in range(CHANCE_STEPS, -1, -1):
            right += due[step]
            wrong += not_due[step]
            if right and right >= recall * self._due:
                break
        return right / max(1, right + wrong)

    def to_json(self) -> dict[str, object]:
        """JSON-ready; the names are documented in docs/readiness.md and stay."""
        return {
            "calls": self.calls,
            "mean_absolute_error_seconds": self.mean_absolute_error_seconds,
            "decision_moments": self.moments,
            "decision_mean_absolute_error_seconds": self.decision_error_seconds,
            "within_half_second": self.within_half_second,
            "pinball_loss_seconds": self.pinball_loss_seconds,
            "readiness": {
                "precision": self.precision,
                "recall": self.recall,
                "lead_seconds": self.lead_seconds,
            },
            "coverage": dict(self.coverage),
        }
