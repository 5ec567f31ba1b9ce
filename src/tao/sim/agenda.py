"""The event heap: what happens when, in virtual time. Ties are broken by the order of booking, so runs repeat exactly."""

import heapq
from collections.abc import Callable
from math import inf
from typing import Any

Action = Callable[..., None]


class Agenda:
    """Actions at moments. An action is called with its moment and the arguments it was booked with."""

    __slots__ = ("_booked", "_heap", "next_at")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._booked = 0
        self.next_at = inf
        """The next moment with something to do; infinity when there is none."""

    def book(self, at: float, action: Action, *args: Any) -> None:
        """Call `action(at, *args)` at the time `at`."""
        self._booked += 1
        heapq.heappush(self._heap, (at, self._booked, action, args))
        self.next_at = self._heap[0][0]

    def do_next(self) -> None:
        """Take the next action off the agenda and do it."""
        at, _, action, args = heapq.heappop(self._heap)
        self.next_at = self._heap[0][0] if self._heap else inf
        action(at, *args)
