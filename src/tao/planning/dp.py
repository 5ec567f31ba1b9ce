"""The quantised dynamic programme of the paper (equation 7): exact on capacities rounded to a quantum.

State: the remaining capacity of every knapsack that has any, in units of the quantum, one array axis each (and one for
slots where they can run out). Items are added one by one; for every state the best of *skip* and *assign to b* is kept,
compared as one packed integer, and the choice is recorded so that the assignment can be read back. Rounding may exclude
plans that are feasible in tokens; it never includes one that is not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tao.planning.instance import Instance, Ints, empty_choice
from tao.planning.packing import pack

STATE_BUDGET = 1 << 25
"""Most items x states: the choice table takes one byte for each (32 MiB)."""
QUANTUM_MAX_TOKENS = 8_192
"""A quantum coarser than this rounds typical weights (about 25,000 tokens) by more than it decides."""
CELLS_PER_WORK_UNIT = 400

Slice = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """The rounded instance: `ceil(w / quantum)` and `floor(C / quantum)`, cut to what all items together need.

    `shape` has an axis for each knapsack in `axes` (knapsack index to axis), then one for each in `slot_axes`. A knapsack
    without an axis is full for all: an array has 64 axes at most, and most of 64 replicas may be full.
    """

    quantum: int
    weights: Ints
    shape: tuple[int, ...]
    axes: dict[int, int]
    slot_axes: dict[int, int]
    items: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Items x states: the size of the choice table."""
        total = max(1, len(self.items))
        for size in self.shape:
            total *= size
        return total

    def shift(self, item: int, bin_: int) -> tuple[Slice, Slice] | None:
        """Where a state lands (to) and comes from (from) when `item` goes to `bin_`; None if it never fits."""
        to = [slice(None)] * len(self.shape)
        source = [slice(None)] * len(self.shape)
        weight = int(self.weights[item])
        axis = self.axes.get(bin_)
        size = 1 if axis is None else self.shape[axis]
        if weight >= size:
            return None
        if axis is not None:
            to[axis], source[axis] = slice(weight, None), slice(0, size - weight)
        axis = self.slot_axes.get(bin_)
        if axis is not None:
            to[axis], source[axis] = slice(1, None), slice(0, self.shape[axis] - 1)
        return tuple(to), tuple(source)


def lattice(instance: Instance, quantum: int) -> Lattice:
    """Round the instance to `quantum` tokens."""
    weights = -(-instance.weights // quantum)
    rounded = instance.capacities // quantum
    needed = (weights[:, None] * instance.eligible).sum(axis=0)
    wanted = instance.eligible.sum(axis=0)
    room = np.minimum(rounded, needed)
    axes = {int(b): axis for axis, b in enumerate(np.flatnonzero(room))}
    shape = [int(room[b]) + 1 for b in axes]
    # Items without weight take slots where no token is left.
    weightless = (instance.eligible & (weights == 0)[:, None]).sum(axis=0)
    slot_axes: dict[int, int] = {}
    for b in np.flatnonzero(instance.slots < wanted):
        if rounded[b] > 0 or instance.slots[b] < weightless[b]:
            slot_axes[int(b)] = len(shape)
            shape.append(int(instance.slots[b]) + 1)
    items = tuple(int(i) for i in np.flatnonzero(instance.eligible.any(axis=1)))
    return Lattice(quantum, weights, tuple(shape), axes, slot_axes, items)


def finest_lattice(instance: Instance, state_budget: int, quantum_max: int) -> Lattice | None:
    """The smallest quantum whose choice table fits `state_budget`; None if even `quantum_max` is too fine."""
    coarse = lattice(instance, quantum_max)
    if coarse.cells > state_budget:
        return None
    low, high = 1, quantum_max
    while low < high:
        middle = (low + high) // 2
        if lattice(instance, middle).cells <= state_budget:
            high = middle
        else:
            low = middle + 1
    return lattice(instance, low)


def is_lossless(instance: Instance, grid: Lattice) -> bool:
    """Whether rounding changed nothing: every weight and every capacity that can run out is a multiple."""
    capacities = instance.capacities % grid.quantum == 0
    ample = instance.capacities >= (instance.weights[:, None] * instance.eligible).sum(axis=0)
    used = list(grid.items)
    return bool((instance.weights[used] % grid.quantum == 0).all() and (capacities | ample).all())


@dataclass(frozen=True, slots=True, eq=False)
class DpResult:
    """`choice` (n,) and the number of cells that were compared."""

    choice: Ints
    cells: int


def solve_lattice(instance: Instance, grid: Lattice) -> DpResult | None:
    """Maximise the packed value over the lattice; None if the values have no packed form."""
    packed = pack(instance).triple
    if packed is None:
        return None
    best: NDArray[np.int64] = np.zeros(grid.shape, dtype=np.int64)
    choices: NDArray[np.uint8 | np.uint16] = np.zeros(
        (len(grid.items), *grid.shape), dtype=_choice_type(instance)
    )
    cells = 0
    for row, item in enumerate(grid.items):
        before = best.copy()
        for bin_ in np.flatnonzero(instance.eligible[item]):
            shift = grid.shift(item, int(bin_))
            if shift is None:
                continue
            to, source = shift
            candidate = before[source] + packed.values[item, bin_]
            better = candidate > best[to]
            np.copyto(best[to], candidate, where=better)
            np.copyto(choices[row][to], bin_ + 1, where=better, casting="unsafe")
            cells += candidate.size
    return DpResult(_read_back(instance, grid, choices), cells)


def _choice_type(instance: Instance) -> type[np.uint8 | np.uint16]:
    return np.uint8 if instance.shape[1] < 255 else np.uint16


def _read_back(instance: Instance, grid: Lattice, choices: NDArray[np.uint8 | np.uint16]) -> Ints:
    """Follow the recorded choices from the full capacity back to nothing."""
    choice = empty_choice(instance)
    state = [size - 1 for size in grid.shape]
    for row in range(len(grid.items) - 1, -1, -1):
        item = grid.items[row]
        bin_ = int(choices[(row, *state)]) - 1
        if bin_ < 0:
            continue
        choice[item] = bin_
        if bin_ in grid.axes:
            state[grid.axes[bin_]] -= int(grid.weights[item])
        if bin_ in grid.slot_axes:
            state[grid.slot_axes[bin_]] -= 1
    return choice
