"""All assignments of a small instance, listed as arrays: exact on raw tokens and faster than any search.

A list state is a partial assignment: the load of every knapsack and the packed value. Each item at most multiplies
the number of states by one more than its knapsacks, so this is for a handful of items.
"""

import numpy as np

from tao.planning.instance import SKIP, Instance, Ints, empty_choice
from tao.planning.packing import Group

ASSIGNMENTS_MAX = 4_096
STATES_PER_WORK_UNIT = 4


def assignments_max(instance: Instance) -> int:
    """How many assignments there are when capacities are ignored (stops counting past `ASSIGNMENTS_MAX`)."""
    total = 1
    for options in instance.eligible.sum(axis=1):
        total *= int(options) + 1
        if total > ASSIGNMENTS_MAX:
            break
    return total


def best_by_listing(instance: Instance, packed: Group) -> Ints:
    """The best assignment by packed value; ties go to the one listed first (skip before knapsacks, ids in order)."""
    _, m = instance.shape
    tokens = instance.capacities[None, :].copy()
    slots = instance.slots[None, :].copy()
    value = np.zeros(1, dtype=np.int64)
    history: list[tuple[int, Ints, Ints]] = []
    for item in np.flatnonzero(instance.eligible.any(axis=1)):
        parents, bins = [np.arange(len(value))], [np.full(len(value), SKIP)]
        for b in np.flatnonzero(instance.eligible[item]):
            fits = np.flatnonzero((tokens[:, b] >= instance.weights[item]) & (slots[:, b] > 0))
            parents.append(fits)
            bins.append(np.full(len(fits), b))
        parent, bin_ = np.concatenate(parents), np.concatenate(bins)
        placed = bin_ != SKIP
        value = value[parent] + np.where(placed, packed.values[item, bin_], 0)
        onto = (bin_[:, None] == np.arange(m)[None, :]).astype(np.int64)
        tokens = tokens[parent] - onto * instance.weights[item]
        slots = slots[parent] - onto
        history.append((int(item), parent, bin_))
    choice = empty_choice(instance)
    state = int(np.argmax(value))
    for item_, parent, bin_ in reversed(history):
        choice[item_] = bin_[state]
        state = int(parent[state])
    return choice
