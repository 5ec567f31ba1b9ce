"""How wide an interval must nominally be to hold the truth as often as it claims (online conformal calibration).

Each scored call tells the least nominal level whose central interval would have held it. The share of calls at or below a
level is what that level really covers; `widened` inverts this. Old calls are forgotten exponentially.
"""

from bisect import bisect_left
from itertools import accumulate
from math import ceil

from tao.policies.returns.port import LearnedStateError
from tao.policies.returns.state import checked_number

STEPS = 50
PRIOR_WEIGHT = 20.0
WEIGHT_MAX = 100.0


class IntervalCoverage:
    """A histogram of scores. One in the first field held the truth at any level; the others are steps of 1/50."""

    def __init__(self) -> None:
        self._masses = [0.0, *([PRIOR_WEIGHT / STEPS] * STEPS)]  # nothing scored: levels are what they claim
        self._held: list[float] = []  # up to and with each field; made when it is asked for

    def add(self, surprise: float) -> None:
        """`surprise`: the least level that would have held the truth, 0 to 1."""
        weight = sum(self._masses)
        if weight >= WEIGHT_MAX:
            keep = (WEIGHT_MAX - 1.0) / weight
            self._masses = [mass * keep for mass in self._masses]
        self._masses[ceil(min(surprise, 1.0) * STEPS)] += 1.0
        self._held = []

    def widened(self, level: float) -> float:
        """The nominal level that covered `level` of the calls and of one more that it will be asked about (the
        finite-sample correction of conformal prediction), linear between steps.
        """
        if not self._held:
            self._held = list(accumulate(self._masses))
        wanted = level * (self._held[-1] + 1.0)
        step = bisect_left(self._held, wanted)
        if step == 0:
            return 0.0
        if step > STEPS:
            return 1.0
        return (step - 1 + (wanted - self._held[step - 1]) / self._masses[step]) / STEPS

    def to_json(self) -> list[float]:
        return [round(mass, 4) for mass in self._masses]

    @classmethod
    def from_json(cls, values: list[object]) -> "IntervalCoverage":
        """Raises `LearnedStateError` for anything that `to_json` does not make."""
        numbers = [checked_number(value) for value in values]
        if len(numbers) != STEPS + 1 or sum(numbers) <= 0.0:
            raise LearnedStateError(f"the coverage is a list of {STEPS + 1} weights, not all 0")
        made = cls()
        made._masses = numbers
        return made
