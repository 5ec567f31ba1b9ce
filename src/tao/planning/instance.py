"""A problem as arrays: what every solver works on, in an order that does not depend on the order of the input.

Items and knapsacks are sorted by id, so that ties end the same way however the caller listed them. An assignment is
an array `choice` of shape (items,): the index of a knapsack, or `SKIP`. Must not know any solver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tao.planning.ageing import priorities
from tao.planning.problem import Item, Problem, SparseValues, Triple

SKIP = -1
NO_HOME = -1
HOME_ELSEWHERE = -2

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Score(NamedTuple):
    """An assignment's worth, first coordinate first; `tie` prefers fewer moves, then more items placed."""

    priority: int
    credit: int
    readiness: int
    footprint: int
    tie: int

    @property
    def triple(self) -> Triple:
        return Triple(self.credit, self.readiness, self.footprint)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """n items and m knapsacks, each sorted by id.

    `values` has shape (3, n, m): credit, readiness, footprint, zero where not eligible. `eligible` (n, m) leaves out
    the pairs that cannot be chosen because the item alone is too large. `slots` is at most n. `home` (n,) is an
    index, `NO_HOME` or `HOME_ELSEWHERE`. `priority` (n,) is the leading coordinate of aged items, zero for others.
    """

    item_ids: tuple[str, ...]
    knapsack_ids: tuple[str, ...]
    weights: Ints
    capacities: Ints
    slots: Ints
    eligible: Mask
    values: Ints
    home: Ints
    priority: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.item_ids), len(self.knapsack_ids)

    def ties(self) -> Ints:
        """Shape (n, m): what a pair adds to `Score.tie`: 1, less n + 1 where it is a move away from home."""
        n, m = self.shape
        at_home = self.home[:, None] == np.arange(m)[None, :]
        stays = at_home | (self.home == NO_HOME)[:, None]
        return np.where(stays, 1, -n).astype(np.int64)

    def without_priority(self) -> "Instance":
        return replace(self, priority=np.zeros_like(self.priority))

    def score(self, choice: Ints) -> Score:
        items = np.flatnonzero(choice != SKIP)
        bins = choice[items]
        credit, readiness, footprint = (int(v) for v in self.values[:, items, bins].sum(axis=1))
        moves = self.moves(choice)
        tie = len(items) - (len(self.item_ids) + 1) * moves
        return Score(int(self.priority[items].sum()), credit, readiness, footprint, tie)

    def moves(self, choice: Ints) -> int:
        placed = choice != SKIP
        return int((placed & (self.home != NO_HOME) & (self.home != choice)).sum())

    def free(self, choice: Ints) -> tuple[Ints, Ints]:
        """Tokens and slots that `choice` leaves in each knapsack."""
        m = len(self.knapsack_ids)
        items = np.flatnonzero(choice != SKIP)
        tokens = self.capacities.copy()
        np.subtract.at(tokens, choice[items], self.weights[items])
        return tokens, self.slots - np.bincount(choice[items], minlength=m)

    def plan_order(self, choice: Ints) -> Iterator[int]:
        """Indices of the placed items: aged first, then by value from high to low, then by id."""
        items = np.flatnonzero(choice != SKIP)
        credit, readiness, footprint = self.values[:, items, choice[items]]
        order = np.lexsort((items, -footprint, -readiness, -credit, -self.priority[items]))
        return (int(i) for i in items[order])


def empty_choice(instance: Instance) -> Ints:
    return np.full(len(instance.item_ids), SKIP, dtype=np.int64)


def compile_problem(problem: Problem) -> Instance:
    """O(n m) preprocessing of a checked problem."""
    items = sorted(problem.items, key=lambda item: item.id)
    knapsacks = sorted(problem.knapsacks, key=lambda knapsack: knapsack.id)
    index = {knapsack.id: b for b, knapsack in enumerate(knapsacks)}
    n, m = len(items), len(knapsacks)
    weights = np.fromiter((item.weight_tokens for item in items), np.int64, n)
    capacities = np.fromiter((k.capacity_tokens for k in knapsacks), np.int64, m)
    slots = np.fromiter((n if k.slots is None else min(n, k.slots) for k in knapsacks), np.int64, m)
    eligible, values = _tables(items, index)
    eligible &= (weights[:, None] <= capacities[None, :]) & (slots > 0)[None, :]
    values *= eligible
    waited = np.fromiter((item.waited_seconds for item in items), np.float64, n)
    return Instance(
        item_ids=tuple(item.id for item in items),
        knapsack_ids=tuple(k.id for k in knapsacks),
        weights=weights,
        capacities=capacities,
        slots=slots,
        eligible=eligible,
        values=values,
        home=np.fromiter((_home(item, index) for item in items), np.int64, n),
        priority=priorities(waited, np.any(eligible, axis=1), problem.wait_seconds_max),
    )


def _home(item: Item, index: Mapping[str, int]) -> int:
    return NO_HOME if item.home is None else index.get(item.home, HOME_ELSEWHERE)


def _tables(items: list[Item], index: Mapping[str, int]) -> tuple[Mask, Ints]:
    eligible = np.zeros((len(items), len(index)), dtype=np.bool_)
    values = np.zeros((3, len(items), len(index)), dtype=np.int64)
    columns: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        if isinstance(item.values, SparseValues):
            sparse = item.values
            if id(sparse.eligible) not in columns:
                columns[id(sparse.eligible)] = [index[b] for b in sparse.eligible]
            row = columns[id(sparse.eligible)]
            eligible[i, row] = True
            values[1, i, row] = sparse.readiness
            values[2, i, row] = sparse.footprint
            for knapsack_id, credit in sparse.credit.items():
                values[0, i, index[knapsack_id]] = credit
        else:
            for knapsack_id, triple in item.values.items():
                eligible[i, index[knapsack_id]] = True
                values[:, i, index[knapsack_id]] = triple
    return eligible, values
