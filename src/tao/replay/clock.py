"""Model time in a live replay: wall time multiplied by the speed. The only file of the package that reads a
clock.
"""

import asyncio
import time


class ModelClock:
    """Seconds of model time since this object was made."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._origin = time.monotonic()

    def now(self) -> float:
        return (time.monotonic() - self._origin) * self._speed

    def wall_seconds(self, model_seconds: float) -> float:
        return model_seconds / self._speed

    async def sleep_until(self, at: float) -> None:
        """Return at model time `at`, at once if it has passed."""
        wait_wall_seconds = (at - self.now()) / self._speed
        if wait_wall_seconds > 0:
            await asyncio.sleep(wait_wall_seconds)
