"""When the next joint decision is due.

A pacing is asked after every event, so it answers from what it was told; it knows neither sessions' values nor plans.
"""

from typing import Protocol

from tao.core.facts import (
    CacheVoided,
    Fact,
    ReplicaChanged,
    SessionClosed,
    SessionInterrupted,
    ToolEnded,
    TurnHeld,
    TurnSettled,
)
from tao.core.ports import View


class Pacing(Protocol):
    """Says when to plan; asked after every event, so it must be cheap."""

    def next_at(self, view: View, at: float) -> float | None:
        """The next planning point; None while there is nothing to plan or a plan is outstanding."""

    def planned(self, at: float) -> None:
        """A planning point has been used."""

    def observe(self, fact: Fact) -> None:
        """Learn from what happened."""


def _something_to_plan(view: View) -> bool:
    up = view.up_replicas()
    return bool(up) and (bool(view.pool) or any(view.free_tokens(replica.id) < 0 for replica in up))


class EveryPeriod:
    """The paper's clock: one decision a period, as long as sessions wait or a replica is overcommitted."""

    def __init__(self, period_seconds: float = 1.0) -> None:
        self._period_seconds = period_seconds
        self._last_at = float("-inf")

    def next_at(self, view: View, at: float) -> float | None:
        if view.planning or not _something_to_plan(view):
            return None
        return max(at, self._last_at + self._period_seconds)

    def planned(self, at: float) -> None:
        self._last_at = at

    def observe(self, fact: Fact) -> None:
        pass


class OnChange:
    """The paper's clock, and at once when something happened that can change the answer.

    Bursts are coalesced: two decisions are at least `gap_seconds` apart.
    """

    CHANGES = (
        TurnHeld,
        TurnSettled,
        ToolEnded,
        SessionClosed,
        SessionInterrupted,
        ReplicaChanged,
        CacheVoided,
    )

    def __init__(self, period_seconds: float = 1.0, gap_seconds: float = 0.05) -> None:
        self._period_seconds = period_seconds
        self._gap_seconds = gap_seconds
        self._last_at = float("-inf")
        self._changed = False

    def next_at(self, view: View, at: float) -> float | None:
        if view.planning or not _something_to_plan(view):
            return None
        wait_seconds = self._gap_seconds if self._changed else self._period_seconds
        return max(at, self._last_at + wait_seconds)

    def planned(self, at: float) -> None:
        self._last_at = at
        self._changed = False

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, self.CHANGES):
            self._changed = True
