"""Plans made one item at a time: best-fit-decreasing, short-first affinity greedy, and greedies by value.

Each is a sort order and a rule for picking a knapsack; aged items go first in all of them. They are fast, feasible
and prove nothing: the joint solvers start from them, fall back to them, and are measured against them.
"""

from collections.abc import Callable

import numpy as np

from tao.planning.instance import SKIP, Instance, Ints, empty_choice

Pick = Callable[[int, Ints, Ints], int]
"""(item, indices of the knapsacks it fits in, free tokens of all knapsacks) to the chosen knapsack."""

PAIRS_PER_WORK_UNIT = 8


def work_units(instance: Instance) -> int:
    """What one pass over all items costs, in `Answer.work_units`."""
    n, m = instance.shape
    return 5 * n + n * m // PAIRS_PER_WORK_UNIT


def best_fit_decreasing(instance: Instance) -> Ints:
    """Heaviest item first, into the knapsack that it leaves least room in."""
    return _place(instance, (-instance.weights,), _tightest)


def short_first_affinity(instance: Instance) -> Ints:
    """Lightest item first, to the most credit, then the most room: the greedy of the paper's Appendix H."""

    def most_credit(item: int, fits: Ints, free: Ints) -> int:
        credit = instance.values[0, item, fits]
        return int(fits[np.lexsort((-free[fits], -credit))[0]])

    return _place(instance, (instance.weights,), most_credit)


def value_first(instance: Instance) -> Ints:
    """Most valuable item first, to its best value; then home, then the tightest fit."""
    best = [np.max(coordinate, axis=1, initial=0) for coordinate in instance.values]

    def best_value(item: int, fits: Ints, free: Ints) -> int:
        credit, readiness, footprint = instance.values[:, item, fits]
        moves = fits != instance.home[item]
        return int(fits[np.lexsort((free[fits], moves, -footprint, -readiness, -credit))[0]])

    return _place(instance, tuple(-coordinate for coordinate in best), best_value)


def credit_density_first(instance: Instance) -> Ints:
    """Most credit for each token of weight first, then readiness, then the lightest; to the most credit."""
    density = instance.values[0].max(axis=1, initial=0) / np.maximum(instance.weights, 1)
    readiness = instance.values[1].max(axis=1, initial=0)

    def most_credit(item: int, fits: Ints, free: Ints) -> int:
        credit = instance.values[0, item, fits]
        return int(fits[np.lexsort((free[fits], -credit))[0]])

    return _place(instance, (-density, -readiness, instance.weights), most_credit)


def most_ready(instance: Instance) -> Ints:
    """As many ready items as pack, the lightest of them; then the others, heaviest first, into what is left.

    The number is found by bisection: whether the lightest ready items pack is tried with best-fit-decreasing, which
    wastes far less room than placing them lightest first.
    """
    readiness = instance.values[1].max(axis=1, initial=0)
    ready = np.flatnonzero(readiness > 0)
    ready = ready[np.argsort(instance.weights[ready], kind="stable")]
    fitting = np.cumsum(instance.weights[ready]) <= instance.capacities.sum()
    low, high = 0, int(fitting.sum())
    while low < high:
        middle = (low + high + 1) // 2
        if _pack_all(instance, ready[:middle]):
            low = middle
        else:
            high = middle - 1
    chosen = np.zeros(len(instance.item_ids), dtype=np.bool_)
    chosen[ready[:low]] = True
    return _place(instance, (~chosen, -instance.weights), _tightest)


def _pack_all(instance: Instance, items: Ints) -> bool:
    """Whether best-fit-decreasing packs all of `items`, alone."""
    free, slots = instance.capacities.copy(), instance.slots.copy()
    for i in items[np.argsort(-instance.weights[items], kind="stable")]:
        fits = np.flatnonzero(instance.eligible[i] & (free >= instance.weights[i]) & (slots > 0))
        if len(fits) == 0:
            return False
        bin_ = _tightest(int(i), fits, free)
        free[bin_] -= instance.weights[i]
        slots[bin_] -= 1
    return True


def _tightest(_item: int, fits: Ints, free: Ints) -> int:
    return int(fits[np.argmin(free[fits])])


def _place(instance: Instance, keys: tuple[np.ndarray, ...], pick: Pick) -> Ints:
    """Walk the items by (priority, keys, id) and put each where `pick` says, or nowhere if nothing has room."""
    order = np.lexsort((*reversed(keys), -instance.priority))
    choice = empty_choice(instance)
    free, slots = instance.capacities.copy(), instance.slots.copy()
    for i in order[instance.eligible[order].any(axis=1)]:
        item = int(i)
        fits = np.flatnonzero(instance.eligible[item] & (free >= instance.weights[item]) & (slots > 0))
        if len(fits) == 0:
            continue
        bin_ = pick(item, fits, free)
        choice[item] = bin_
        free[bin_] -= instance.weights[item]
        slots[bin_] -= 1
    assert bool((choice >= SKIP).all())
    return choice
