"""The independent check of an assignment: its objective from the problem alone, or the rule that it breaks.

Short and slow on purpose: it shares no code with the solvers, so that a mistake there shows here.
"""

from collections import Counter
from collections.abc import Mapping

from tao.planning.problem import Problem, Triple


class InfeasibleError(ValueError):
    """An assignment that breaks a constraint of its problem; the message names the constraint."""


def verify(problem: Problem, assignment: Mapping[str, str]) -> Triple:
    """Return the summed triple of `assignment` (equation 1), or raise `InfeasibleError`."""
    items = {item.id: item for item in problem.items}
    load_tokens: Counter[str] = Counter()
    load_slots: Counter[str] = Counter()
    credit = readiness = footprint = 0
    for item_id, knapsack_id in assignment.items():
        item = items.get(item_id)
        if item is None:
            raise InfeasibleError(f"item {item_id!r} is not in the problem")
        if knapsack_id not in item.values:
            raise InfeasibleError(f"item {item_id!r} is not eligible for knapsack {knapsack_id!r}")
        value = item.values[knapsack_id]
        load_tokens[knapsack_id] += item.weight_tokens
        load_slots[knapsack_id] += 1
        credit += value.credit
        readiness += value.readiness
        footprint += value.footprint
    for knapsack in problem.knapsacks:
        if load_tokens[knapsack.id] > knapsack.capacity_tokens:
            raise InfeasibleError(
                f"knapsack {knapsack.id!r} holds {load_tokens[knapsack.id]} tokens, "
                f"more than its capacity of {knapsack.capacity_tokens}"
            )
        if knapsack.slots is not None and load_slots[knapsack.id] > knapsack.slots:
            raise InfeasibleError(
                f"knapsack {knapsack.id!r} holds {load_slots[knapsack.id]} items, "
                f"more than its {knapsack.slots} slots"
            )
    return Triple(credit, readiness, footprint)
