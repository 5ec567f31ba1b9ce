"""Consecutive steps of one batch in closed form: when each ends, and how many have ended by a given time.

The context grows by the same number of tokens with every step, so durations grow linearly and times
quadratically. It knows seconds and step numbers only.
"""

from __future__ import annotations

from math import sqrt


class Leap:
    """Equal decode steps from `start`, or one mixed step: step j ends at `ends_at(j)`, the last at `end`."""

    __slots__ = ("_growth", "_step", "blocks_steps", "end", "start", "steps")

    def __init__(self, start: float, step_seconds: float, growth_seconds: float, steps: int) -> None:
        self.start = start
        self._step = step_seconds  # duration of the first step
        self._growth = growth_seconds  # by which each is longer than the one before
        self.steps = steps
        self.blocks_steps = 1  # steps whose new blocks are taken
        self.end = self.ends_at(steps)

    def ends_at(self, step: int) -> float:
        return self.start + step * self._step + self._growth * (step * (step - 1) // 2)

    def completed(self, at: float) -> int:
        """Steps that end at or before `at`."""
        if at >= self.end:
            return self.steps
        if self.steps == 1 or at <= self.start:
            return 0
        elapsed, half = at - self.start, self._growth / 2
        linear = self._step - half
        guess = (
            elapsed / linear
            if half == 0
            else 2 * elapsed / (linear + sqrt(linear * linear + 4 * half * elapsed))
        )
        step = max(0, min(int(guess), self.steps - 1))
        while step > 0 and self.ends_at(step) > at:
            step -= 1
        while step + 1 < self.steps and self.ends_at(step + 1) <= at:
            step += 1
        return step

    def cut(self, steps: int) -> None:
        self.end = self.ends_at(steps)
        self.steps = steps
