"""Cheap upper bounds, one coordinate at a time: what no assignment can pass.

Lagrangian: give each token of knapsack b a price p[b] >= 0 and let every item choose freely. For any prices
`sum_b p[b] C[b] + sum_i max(0, max_b v[i,b] - p[b] w[i])` is an upper bound, so only the quality of the bound depends
on the prices, never its truth. Prices are fixed-point integers and the sum is exact. Must not know any solver.
"""

import numpy as np

from tao.planning.instance import SKIP, Instance, Ints
from tao.planning.problem import Triple

PRICE_BITS = 20
REWARD_BITS = 18
_EXACT_MAX = 2**62


def cheap_bound(instance: Instance) -> Triple:
    """An upper bound of each coordinate on its own, over all assignments; O(n m log n)."""
    return Triple(*(coordinate_bound(instance, values) for values in instance.values))


def tightened(instance: Instance, reached: Triple, bound: Triple) -> Triple:
    """`bound`, lowered for assignments that reach `reached` in the coordinate before; for plans that are not proved."""
    credit, readiness, footprint = instance.values
    after_credit = bound_given(instance, readiness, credit, reached.credit)
    after_readiness = bound_given(instance, footprint, readiness, reached.readiness)
    return Triple(bound.credit, min(bound.readiness, after_credit), min(bound.footprint, after_readiness))


def bound_given(instance: Instance, values: Ints, earlier: Ints, reached: int) -> int:
    """Upper bound of the summed `values` over assignments whose summed `earlier` is at least `reached`.

    For any reward u >= 0 it is the bound of `values + u * earlier`, less `u * reached`: about convex in u, so the best
    power of two is found by bisection, and then some u beside it are tried.
    """

    def at(reward: int) -> int:
        return coordinate_bound(instance, values + reward * earlier) - reward * reached

    # Sums of rewarded values must stay below 2**62 in numpy's integers.
    bits = 61 - int(earlier.max(initial=0)).bit_length() - len(instance.item_ids).bit_length()
    low, high = 0, min(REWARD_BITS, bits)
    while low < high:
        middle = (low + high) // 2
        if at(1 << middle) <= at(2 << middle):
            high = middle
        else:
            low = middle + 1
    best = 1 << low
    beside = (best * eighths // 8 for eighths in (5, 6, 7, 8, 10, 12, 14))
    return min(at(0), *(at(reward) for reward in beside))


def is_best(instance: Instance, choice: Ints, bound: Triple) -> bool:
    """Whether cheap bounds alone prove `choice` optimal, ties included."""
    unaged = not instance.priority.any() or bool((choice[instance.priority > 0] != SKIP).all())
    return unaged and instance.score(choice).triple == bound and instance.moves(choice) == 0


def coordinate_bound(instance: Instance, values: Ints) -> int:
    """Upper bound of the summed `values`, shape (n, m), over all assignments."""
    n, m = instance.shape
    if n == 0 or m == 0:
        return 0
    best = values.max(axis=1)
    everything = int(best.sum())
    if everything == 0:
        return 0
    by_slots = everything if (instance.slots >= n).all() else _by_slots(instance, values)
    columns = np.column_stack((values, best))
    capacities = np.append(instance.capacities, instance.capacities.sum())
    *own, common = _break_prices(columns, instance.weights, capacities)
    priced = (priced_bound(instance, values, prices) for prices in (own, [common] * m))
    return min(everything, by_slots, *priced)


def _by_slots(instance: Instance, values: Ints) -> int:
    """The most valuable items of each knapsack, as many as it has slots."""
    highest = np.sort(values, axis=0)[::-1]
    within = np.arange(len(values))[:, None] < instance.slots[None, :]
    return int((highest * within).sum())


def priced_bound(instance: Instance, values: Ints, prices: list[int]) -> int:
    """The bound at `prices`: for each knapsack, value per token times 2**PRICE_BITS."""
    weights: np.ndarray = instance.weights
    price: np.ndarray = np.array(prices, dtype=np.int64)
    scaled: np.ndarray = values
    largest = max(int(values.max()) << PRICE_BITS, int(weights.max()) * max(prices), 1)
    if largest * len(weights) >= _EXACT_MAX:
        weights, price, scaled = weights.astype(object), price.astype(object), values.astype(object)
    scaled = scaled * (1 << PRICE_BITS) - weights[:, None] * price[None, :]
    gain = np.where(instance.eligible, scaled, 0).max(axis=1)
    total = int(np.maximum(gain, 0).sum())
    total += sum(p * int(c) for p, c in zip(prices, instance.capacities, strict=True))
    return total >> PRICE_BITS


def _break_prices(values: Ints, weights: Ints, capacities: Ints) -> list[int]:
    """Dantzig's price of each column of `values`: the value per token of the item at which the column's capacity runs out
    when items go in by density; 0 where all fit.
    """
    worth = values > 0
    density = np.where(worth, values / np.maximum(weights, 1)[:, None], -np.inf)
    order = np.argsort(-density, axis=0, kind="stable")
    filled = np.cumsum(np.where(worth, weights[:, None], 0)[order, np.arange(values.shape[1])], axis=0)
    counts = worth.sum(axis=0).tolist()
    fitting = (filled <= capacities[None, :]).sum(axis=0).tolist()
    prices = []
    for column, (count, at) in enumerate(zip(counts, fitting, strict=True)):
        if at >= count:
            prices.append(0)
            continue
        item = int(order[at, column])
        prices.append((int(values[item, column]) << PRICE_BITS) // max(int(weights[item]), 1))
    return prices
