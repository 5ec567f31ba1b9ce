"""What an exact search is asked and what it says, free of any solver library.

`load_cpsat` imports the library when the first search is run, so that a process that never searches never pays.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol, cast

from tao.planning.instance import Instance, Ints, Mask


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """`deterministic_seconds`: the library's own count of work; `seconds`: wall clock, None for none."""

    deterministic_seconds: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast:
    """The summed `values` (n, m) of the chosen pairs must reach `least`."""

    values: Ints
    least: int


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """`choice` (n,) or None where nothing was found; `bound` is an upper bound of the objective.

    `proved` with a choice: it is optimal. `proved` without one: there is no such assignment.
    """

    choice: Ints | None
    bound: int | None
    deterministic_seconds: float
    proved: bool


class Search(Protocol):
    """`tao.planning.cpsat.maximise`."""

    def __call__(
        self,
        instance: Instance,
        pairs: Mask,
        objective: Ints,
        limit: SearchLimit,
        *,
        hint: Ints | None = None,
        at_least: Sequence[AtLeast] = (),
        excluded: Sequence[Ints] = (),
        enough: int | None = None,
    ) -> SearchResult: ...


def load_cpsat() -> Search:
    return cast("Search", importlib.import_module("tao.planning.cpsat").maximise)


class Allowance:
    """What is left of a limit over several searches: deterministic work always, wall clock where it is limited."""

    def __init__(self, deterministic_seconds: float, seconds: float | None) -> None:
        self._all = self._left = deterministic_seconds
        self._until = None if seconds is None else perf_counter() + seconds
        self.spent_deterministic_seconds = 0.0

    @property
    def exhausted(self) -> bool:
        return self._left <= 0 or (self._until is not None and perf_counter() >= self._until)

    def limit(self, share: float = 1.0) -> SearchLimit:
        """What is left, for the next search; no more than `share` of all the work there was."""
        seconds = None if self._until is None else max(0.0, self._until - perf_counter())
        return SearchLimit(min(self._left, share * self._all), seconds)

    def charge(self, result: SearchResult) -> SearchResult:
        self._left -= result.deterministic_seconds
        self.spent_deterministic_seconds += result.deterministic_seconds
        return result
