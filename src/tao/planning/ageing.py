"""Items that waited past a bound come before everything else, the oldest first.

The order is one more coordinate ahead of the triple: `priorities` gives each aged item an integer, and solvers
maximise the sum of those of the placed items before they look at credit. Must not know any solver.

Why no item starves. The oldest aged item's priority is larger than those of all others together, so an exact solver
(and every heuristic here, which places by priority first) places it whenever it alone fits: whenever an eligible
knapsack has that much free capacity and a free slot. Only the items that began to wait before it can be older, their
number is finite, and each leaves the pool when it is placed; so every item becomes the oldest, and is then placed at
the next plan at which it fits.
The assumption: at some later planning point an eligible knapsack has room for it alone. Capacity that is freed in
small pieces and given at once to small items would break that; `hold_back` restores it, by keeping the roomiest
eligible knapsack for the oldest item alone until it fits. Then the assumption is only that the items inside a knapsack end,
and that no item weighs more than an empty knapsack.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tao.planning.problem import Item, Knapsack, Problem, SparseValues, Triple

OLDEST_IN_ORDER = 8
"""So many of the oldest aged items are ranked strictly; of the others, as many as possible are placed."""


def priorities(
    waited_seconds: NDArray[np.float64], placeable: NDArray[np.bool_], wait_seconds_max: float | None
) -> NDArray[np.int64]:
    """Leading coordinate of each item, shape (n,); items are in id order, which breaks ties of age."""
    priority = np.zeros(len(waited_seconds), dtype=np.int64)
    if wait_seconds_max is None:
        return priority
    aged = np.flatnonzero((waited_seconds >= wait_seconds_max) & placeable)
    oldest_first = aged[np.argsort(-waited_seconds[aged], kind="stable")]
    ranked, others = oldest_first[:OLDEST_IN_ORDER], oldest_first[OLDEST_IN_ORDER:]
    priority[others] = 1
    for rank, item in enumerate(reversed(ranked)):
        priority[item] = (len(others) + 1) << rank
    return priority


def hold_back(problem: Problem) -> Problem:
    """Keep room for the oldest aged item that fits nowhere: close one knapsack to all other items.

    The knapsack kept is the one with most free tokens among those that the item may use (ties by id). Returns the
    problem itself where no item is aged or the oldest fits. The caller answers for items that fit in no knapsack
    even when it is empty: they would hold it for ever and must not be in the problem.
    """
    limit = problem.wait_seconds_max
    if limit is None:
        return problem
    aged = [item for item in problem.items if item.waited_seconds >= limit and item.values]
    if not aged:
        return problem
    oldest = min(aged, key=lambda item: (-item.waited_seconds, item.id))
    usable = [knapsack for knapsack in problem.knapsacks if knapsack.id in oldest.values]
    if any(_fits(oldest, knapsack) for knapsack in usable):
        return problem
    kept = min(usable, key=lambda knapsack: (-knapsack.capacity_tokens, knapsack.id)).id
    closing = _Closing(kept)
    items = (item if item is oldest else closing.to(item) for item in problem.items)
    return replace(problem, items=tuple(items))


def _fits(item: Item, knapsack: Knapsack) -> bool:
    return item.weight_tokens <= knapsack.capacity_tokens and knapsack.slots != 0


class _Closing:
    """Takes one knapsack from items. Items that shared their `eligible` share what is left of it."""

    def __init__(self, knapsack_id: str) -> None:
        self._closed = knapsack_id
        self._left: dict[tuple[str, ...], tuple[str, ...]] = {}

    def to(self, item: Item) -> Item:
        closed, values = self._closed, item.values
        kept: Mapping[str, Triple]
        if isinstance(values, SparseValues):
            left = self._left.get(values.eligible)
            if left is None:
                left = self._left[values.eligible] = tuple(b for b in values.eligible if b != closed)
            credit = {b: k for b, k in values.credit.items() if b != closed}
            kept = SparseValues(left, credit, values.readiness, values.footprint)
        else:
            kept = {b: triple for b, triple in values.items() if b != closed}
        return Item(item.id, item.weight_tokens, kept, item.home, item.waited_seconds)
