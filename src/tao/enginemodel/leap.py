"""Consecutive steps of one batch in closed form: when each ends, and how many have ended by a given time.

The context grows by the same number of tokens with every step, be they decoded or a chunk of a prompt, so
durations grow linearly and times quadratically. It knows seconds and step numbers only.
"""

from __future__ import annotations

from math import sqrt


class Leap:
    """Steps from `start`, each longer than the one before by the same time; the last ends at `end`.

    `decode_steps` and `chunk_steps` say how many of them the engine has booked blocks for.
    """

    __slots__ = ("_growth", "_step", "chunk_steps", "chunk_tokens", "decode_steps", "end", "start", "steps")

    def __init__(
        self, start: float, step_seconds: float, growth_seconds: float, steps: int, chunk_tokens: int = 0
    ) -> None:
        self.start = start
        self._step = step_seconds
        self._growth = growth_seconds
        self.steps = steps
        self.chunk_tokens = chunk_tokens  # of the one prompt that all these steps compute, in whole chunks
        self.decode_steps = 1
        self.chunk_steps = 1
        self.end = start + steps * step_seconds + growth_seconds * (steps * (steps - 1) // 2)

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
