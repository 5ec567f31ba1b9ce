"""The optimum by trying every assignment: obvious, and sharing nothing with the solvers."""

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tao.planning import Item, Knapsack, Problem, Triple

Ints = NDArray[np.int64]


@cache
def _assignments(items: int, knapsacks: int) -> Ints:
    """Shape ((knapsacks + 1) ** items, items): every assignment; `knapsacks` stands for not placed."""
    rows = list(product(range(knapsacks + 1), repeat=items))
    return np.array(rows, dtype=np.int64).reshape(len(rows), items)


def best_triple(problem: Problem) -> Triple:
    """The lexicographic maximum of the summed triple over all assignments."""
    n, m = len(problem.items), len(problem.knapsacks)
    every = _assignments(n, m)
    feasible = np.ones(len(every), dtype=np.bool_)
    weights = np.array([item.weight_tokens for item in problem.items], dtype=np.int64)
    for b, knapsack in enumerate(problem.knapsacks):
        inside = every == b
        feasible &= (inside * weights).sum(axis=1) <= knapsack.capacity_tokens
        if knapsack.slots is not None:
            feasible &= inside.sum(axis=1) <= knapsack.slots
    sums = np.zeros((3, len(every)), dtype=np.int64)
    for i, item in enumerate(problem.items):
        table = np.zeros((3, m + 1), dtype=np.int64)
        allowed = np.ones(m + 1, dtype=np.bool_)
        for b, knapsack in enumerate(problem.knapsacks):
            allowed[b] = knapsack.id in item.values
            if allowed[b]:
                table[:, b] = item.values[knapsack.id]
        feasible &= allowed[every[:, i]]
        sums += table[:, every[:, i]]
    left = sums[:, feasible]
    best = []
    for coordinate in range(3):
        best.append(int(left[coordinate].max()))
        left = left[:, left[coordinate] == best[-1]]
    return Triple(*best)


def quantised(problem: Problem, quantum: int) -> Problem:
    """The problem that equation 7 solves: weights rounded up, capacities rounded down."""
    return Problem(
        tuple(Knapsack(k.id, k.capacity_tokens // quantum, k.slots) for k in problem.knapsacks),
        tuple(
            Item(i.id, -(-i.weight_tokens // quantum), i.values, i.home, i.waited_seconds)
            for i in problem.items
        ),
        problem.wait_seconds_max,
    )
