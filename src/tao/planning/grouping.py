"""Knapsacks that no value tells apart become one: fewer capacity axes for the dynamic programme (Appendix B).

A knapsack joins a larger one when every item that fits in it is eligible for both or neither, at the same value. The
grouped knapsack holds the sum of the capacities, which is a relaxation: the answer must still be packed into the real
ones, and is repaired where it does not pack. Must not know how the grouped instance is solved.
"""

from dataclasses import dataclass

import numpy as np

from tao.planning.instance import HOME_ELSEWHERE, NO_HOME, SKIP, Instance, Ints, empty_choice
from tao.planning.local_search import improve
from tao.planning.packing import pack


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """`instance` has one knapsack for each group; `members[g]` are the knapsacks of group g."""

    instance: Instance
    members: tuple[Ints, ...]


def group_equivalent(instance: Instance) -> Groups | None:
    """Group what can be grouped; None where every knapsack is one of its kind."""
    members_of: dict[int, list[int]] = {}
    for b in np.argsort(-instance.capacities, kind="stable").tolist():
        leader = next((a for a in members_of if _joins(instance, b, a)), b)
        members_of.setdefault(leader, []).append(b)
    if len(members_of) == instance.shape[1]:
        return None
    members = tuple(np.array(sorted(group), dtype=np.int64) for _, group in sorted(members_of.items()))
    home: Ints = np.full_like(instance.home, HOME_ELSEWHERE)
    home[instance.home == NO_HOME] = NO_HOME
    for g, group in enumerate(members):
        home[np.isin(instance.home, group)] = g
    n = len(instance.item_ids)
    eligible = np.stack([instance.eligible[:, group].any(axis=1) for group in members], axis=1)
    values = np.stack([instance.values[:, :, group].max(axis=2) for group in members], axis=2)
    grouped = Instance(
        item_ids=instance.item_ids,
        knapsack_ids=tuple(instance.knapsack_ids[group[0]] for group in members),
        weights=instance.weights,
        capacities=np.array([instance.capacities[group].sum() for group in members], dtype=np.int64),
        slots=np.array([min(n, int(instance.slots[group].sum())) for group in members], dtype=np.int64),
        eligible=eligible,
        values=values,
        home=home,
        priority=instance.priority,
    )
    return Groups(grouped, members)


def _joins(instance: Instance, b: int, leader: int) -> bool:
    """Whether the items that fit in `b` see no difference between it and `leader`."""
    fits = instance.weights <= instance.capacities[b]
    same = instance.eligible[fits, b] == instance.eligible[fits, leader]
    return bool(same.all() and (instance.values[:, fits, b] == instance.values[:, fits, leader]).all())


def unpack(instance: Instance, groups: Groups, grouped: Ints) -> tuple[Ints, bool]:
    """Pack a grouped answer into the real knapsacks: (choice, whether every chosen item found room).

    Home first, then heaviest first into the tightest fit. Items that find no room are left out, and the plan is then
    improved by local search, so that the room is not lost.
    """
    choice = empty_choice(instance)
    free, slots = instance.capacities.copy(), instance.slots.copy()

    def put(item: int, b: int) -> None:
        choice[item] = b
        free[b] -= instance.weights[item]
        slots[b] -= 1

    intact = True
    placed = np.flatnonzero(grouped != SKIP)
    order = placed[np.lexsort((-instance.weights[placed], -instance.priority[placed]))]
    for i in order:
        item = int(i)
        members = groups.members[int(grouped[item])]
        open_ = instance.eligible[item, members] & (slots[members] > 0)
        fits = members[open_ & (free[members] >= instance.weights[item])]
        if len(fits) == 0:
            intact = False
            continue
        at_home = fits[fits == instance.home[item]]
        put(item, int(at_home[0]) if len(at_home) else int(fits[np.argmin(free[fits])]))
    packed = None if intact else pack(instance).triple
    if packed is not None:
        choice, _ = improve(instance, choice, packed)
    return choice, intact
