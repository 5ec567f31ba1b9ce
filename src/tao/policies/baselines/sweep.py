"""A scheduler that looks around at a fixed interval, whatever happens between: when is the next tick?

It knows time from facts and from what it is told; it must not know what a tick does.
"""

from math import ceil

from tao.core.facts import Fact
from tao.core.ports import View


class Sweep:
    """Ticks at multiples of `period_seconds` while any session is open.

    A wake-up that comes late is still that tick; one that comes more than a period late means that nothing was open in
    between, and the next multiple is due.
    """

    def __init__(self, period_seconds: float) -> None:
        self._period_seconds = period_seconds
        self._due_at = 0.0

    def next_at(self, view: View) -> float | None:
        """The next tick; possibly in the past when a wake-up is late."""
        return self._due_at if view.sessions else None

    def observe(self, fact: Fact) -> None:
        """Facts carry the time: the first one after a quiet spell moves the next tick to the grid."""
        if fact.at - self._due_at > self._period_seconds:
            self._due_at = self._on_grid(fact.at)

    def ticked(self, at: float) -> None:
        """The tick has been used."""
        self._due_at = self._on_grid(at)

    def _on_grid(self, at: float) -> float:
        due_at = ceil(at / self._period_seconds) * self._period_seconds
        return due_at if due_at > at else due_at + self._period_seconds
