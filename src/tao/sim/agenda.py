"""The event heap: what happens when, in virtual time. Ties are broken by the order of booking, so runs repeat exactly."""

import heapq
from collections.abc import Callable
from math import inf

Action = Callable[[float], None]


class Agenda:
    """Actions at moments; an action gets its moment."""

    __slots__ = ("_booked", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._booked = 0

    def book(self, at: float, action: Action) -> None:
        """Do `action` at the time `at`."""
        self._booked += 1
        heapq.heappush(self._heap, (at, self._booked, action))

    @property
    def next_at(self) -> float:
        """The next moment with something to do; infinity when there is none."""
        return self._heap[0][0] if self._heap else inf

    def pop(self) -> tuple[float, Action]:
        """The next action, taken off the agenda."""
        at, _, action = heapq.heappop(self._heap)
        return at, action
