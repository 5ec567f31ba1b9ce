"""Improve any plan by small steps: insert an item, swap one in for one out, or move one aside to let one in.

Steps are taken best first within a knapsack and never lower the packed value, so the result is never worse than the
start. Deterministic: knapsacks in id order, ties to the lower index, a bounded number of passes.
"""

import numpy as np

from tao.planning.instance import SKIP, Instance, Ints
from tao.planning.packing import PACKED_MAX, Group

PASSES_MAX = 12
NEVER = -PACKED_MAX


def improve(instance: Instance, choice: Ints, packed: Group) -> tuple[Ints, int]:
    """Return a plan at least as good by `packed`, and the work done in `Answer.work_units`."""
    climb = _Climb(instance, choice, packed.values)
    work = 0
    for _ in range(PASSES_MAX):
        steps = climb.insert_all()
        for b in range(instance.shape[1]):
            steps += climb.exchange(b)
        work += 5 * sum(instance.shape) + instance.eligible.size // 8
        if steps == 0:
            break
    return climb.choice, work


class _Climb:
    """The plan being improved, with what is free in each knapsack."""

    def __init__(self, instance: Instance, choice: Ints, values: Ints) -> None:
        self.instance = instance
        self.values = values
        self.choice = choice.copy()
        self.free, self.slots = instance.free(choice)

    def insert_all(self) -> int:
        """Place what fits, the most valuable first."""
        waiting = np.flatnonzero((self.choice == SKIP) & self.instance.eligible.any(axis=1))
        room = int(self.free.max(initial=0))
        waiting = waiting[self.instance.weights[waiting] <= room]
        steps = 0
        for i in waiting[np.argsort(-self.values[waiting].max(axis=1, initial=NEVER), kind="stable")]:
            fits = np.flatnonzero(self._fits(int(i)))
            if len(fits) == 0:
                continue
            b = int(fits[np.lexsort((self.free[fits], -self.values[i, fits]))[0]])
            if self.values[i, b] > 0:
                self._place(int(i), b)
                steps += 1
        return steps

    def exchange(self, b: int) -> int:
        """Swap or shift in knapsack `b` while that gains."""
        steps = 0
        for _ in range(len(self.choice)):
            if not self._exchange_once(b):
                break
            steps += 1
        return steps

    def _exchange_once(self, b: int) -> bool:
        """The best single step: some item out of `b` (dropped or moved aside), some waiting item (or none) in."""
        inside = np.flatnonzero(self.choice == b)
        if len(inside) == 0:
            return False
        aside, aside_gain = self._aside(inside, b)
        drop_gain = -self.values[inside, b]
        out_gain = np.maximum(drop_gain, aside_gain)
        waiting = np.flatnonzero((self.choice == SKIP) & self.instance.eligible[:, b])
        weights = self.instance.weights
        room = self.free[b] + weights[inside]
        gains = np.where(
            weights[waiting][:, None] <= room[None, :],
            self.values[waiting, b][:, None] + out_gain[None, :],
            NEVER,
        )
        gains = np.vstack([np.where(aside_gain > drop_gain, aside_gain, NEVER)[None, :], gains])
        row, column = np.unravel_index(int(np.argmax(gains)), gains.shape)
        if gains[row, column] <= 0:
            return False
        item = int(inside[column])
        self._remove(item)
        if aside_gain[column] > drop_gain[column]:
            self._place(item, int(aside[column]))
        if row > 0:
            self._place(int(waiting[row - 1]), b)
        return True

    def _aside(self, inside: Ints, b: int) -> tuple[Ints, Ints]:
        """For each item inside `b`, the best other knapsack with room, and what moving there gains."""
        fits = self.instance.eligible[inside] & (self.free >= self.instance.weights[inside][:, None])
        fits &= (self.slots > 0)[None, :]
        fits[:, b] = False
        gain = np.where(fits, self.values[inside] - self.values[inside, b][:, None], NEVER)
        best = np.argmax(gain, axis=1)
        return best, gain[np.arange(len(inside)), best]

    def _fits(self, item: int) -> np.ndarray:
        instance = self.instance
        return np.asarray(
            instance.eligible[item] & (self.free >= instance.weights[item]) & (self.slots > 0), dtype=np.bool_
        )

    def _place(self, item: int, b: int) -> None:
        self.choice[item] = b
        self.free[b] -= self.instance.weights[item]
        self.slots[b] -= 1

    def _remove(self, item: int) -> None:
        b = self.choice[item]
        self.choice[item] = SKIP
        self.free[b] += self.instance.weights[item]
        self.slots[b] += 1
