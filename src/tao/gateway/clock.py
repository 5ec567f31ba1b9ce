"""Model time: the wall clock's monotonic seconds since the start, times a speed.

With emulated replicas a whole system can run ten times as fast as the real one; every time of the core is then in model
seconds, while transport time-outs stay on the wall clock.
"""

import time


class ModelClock:
    """`speed`: model seconds per wall second; 1 in front of real engines."""

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be greater than 0, not {speed!r}")
        self.speed = speed
        self._started = time.monotonic()

    def now(self) -> float:
        """Model seconds since the clock was made."""
        return (time.monotonic() - self._started) * self.speed

    def wall_seconds(self, model_seconds: float) -> float:
        """How long a span of model time lasts on the wall clock."""
        return model_seconds / self.speed
