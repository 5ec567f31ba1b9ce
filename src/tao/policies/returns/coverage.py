"""How wide an interval must nominally be to hold the truth as often as it claims (online conformal calibration).

Each scored call tells the least nominal level whose central interval would have held it. The share of calls at or below a
level is what that level really covers; the table inverts this, and forgets exponentially.
"""

from itertools import accumulate

from tao.policies.returns.port import LearnedStateError
from tao.policies.returns.state import checked_number

STEPS = 50
PRIOR_WEIGHT = 20.0
WEIGHT_MAX = 150.0


class IntervalCoverage:
    """`table`: nominal levels that cover 0, 1/50, ... 1 of the calls; a new one after every call, never changed."""

    def __init__(self) -> None:
        self._masses = [PRIOR_WEIGHT / STEPS] * STEPS  # before anything is scored: levels are what they claim
        self._at_zero = 0.0
        self.table = self._inverted()

    def add(self, surprise: float) -> None:
        """`surprise`: the least level that would have held the truth, 0 to 1."""
        weight = sum(self._masses) + self._at_zero
        if weight >= WEIGHT_MAX:
            keep = (WEIGHT_MAX - 1.0) / weight
            self._masses = [mass * keep for mass in self._masses]
            self._at_zero *= keep
        if surprise <= 0.0:
            self._at_zero += 1.0
        else:
            self._masses[min(int(surprise * STEPS), STEPS - 1)] += 1.0
        self.table = self._inverted()

    def to_json(self) -> list[float]:
        return [round(self._at_zero, 4), *(round(mass, 4) for mass in self._masses)]

    @classmethod
    def from_json(cls, values: list[object]) -> "IntervalCoverage":
        """Raises `LearnedStateError` for anything that `to_json` does not make."""
        numbers = [checked_number(value) for value in values]
        if len(numbers) != STEPS + 1 or sum(numbers) <= 0.0:
            raise LearnedStateError(f"the coverage is a list of {STEPS + 1} weights, not all 0")
        made = cls()
        made._at_zero, made._masses = numbers[0], numbers[1:]
        made.table = made._inverted()
        return made

    def _inverted(self) -> tuple[float, ...]:
        held = list(accumulate(self._masses, initial=self._at_zero))  # by the levels 0, 1/50, ... 1
        total = held[-1]
        levels: list[float] = []
        index = 0
        for step in range(STEPS + 1):
            wanted = total * step / STEPS
            while index < STEPS and held[index] < wanted:
                index += 1
            if index == 0:
                levels.append(0.0)
                continue
            below, upto = held[index - 1], held[index]
            share = (wanted - below) / (upto - below) if upto > below else 1.0
            levels.append(min(1.0, (index - 1 + share) / STEPS))
        return tuple(levels)
