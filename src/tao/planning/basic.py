"""The solvers of the paper and of its comparisons: the quantised dynamic programme and the one-pass heuristics.

None of them searches, so none needs a limit. Must not know the exact solver.
"""

from dataclasses import dataclass

from tao.planning import heuristics
from tao.planning.answer import Status
from tao.planning.bounds import cheap_bound, is_best
from tao.planning.dp import (
    CELLS_PER_WORK_UNIT,
    QUANTUM_MAX_TOKENS,
    STATE_BUDGET,
    finest_lattice,
    is_lossless,
    solve_lattice,
)
from tao.planning.grouping import group_equivalent, unpack
from tao.planning.instance import Instance, Ints, empty_choice
from tao.planning.listing import ASSIGNMENTS_MAX, STATES_PER_WORK_UNIT, assignments_max, best_by_listing
from tao.planning.packing import pack
from tao.planning.solver import Solution, WorkLimit


class BestFitDecreasing:
    """`bfd`: heaviest first, tightest fit; blind to values."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - it never runs long
        return heuristic_solution(instance, heuristics.best_fit_decreasing(instance), "bfd")


class Greedy:
    """`greedy`: lightest first, to the knapsack with the most credit (the paper's Appendix H)."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - it never runs long
        return heuristic_solution(instance, heuristics.short_first_affinity(instance), "greedy")


@dataclass(frozen=True, slots=True)
class QuantisedDp:
    """`dp`: equation 7 at the finest quantum within `state_budget`; best-fit-decreasing beyond it.

    Where there are fewer assignments than states they are listed instead: the same optimum, at a quantum of 1.
    Equivalent knapsacks are grouped; a grouped answer that does not pack is repaired (`tao.planning.grouping`).
    """

    state_budget: int = STATE_BUDGET
    quantum_max: int = QUANTUM_MAX_TOKENS

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - bounded by its budget
        listed = listed_solution(instance)
        if listed is not None:
            return listed
        plain = finest_lattice(instance, self.state_budget, self.quantum_max)
        groups = None if plain is not None and plain.quantum == 1 else group_equivalent(instance)
        target = instance if groups is None else groups.instance
        grid = plain if groups is None else finest_lattice(target, self.state_budget, self.quantum_max)
        result = None if grid is None else solve_lattice(target, grid)
        if grid is None or result is None:
            return heuristic_solution(instance, heuristics.best_fit_decreasing(instance), "bfd", "fallback")
        choice, intact = (result.choice, True) if groups is None else unpack(instance, groups, result.choice)
        objective = instance.score(choice).triple
        proved = intact and is_lossless(target, grid)
        bound = objective if proved else cheap_bound(instance)
        status: Status = "optimal" if proved or is_best(instance, choice, bound) else "feasible"
        work = result.cells // CELLS_PER_WORK_UNIT + heuristics.work_units(instance)
        return Solution(choice, status, "dp", bound, work, grid.quantum)


def heuristic_solution(
    instance: Instance, choice: Ints, name: str, unproved: Status = "feasible", work_units: int = 0
) -> Solution:
    """A heuristic's answer with the cheap bound, which sometimes proves it optimal."""
    bound = cheap_bound(instance)
    status: Status = "optimal" if is_best(instance, choice, bound) else unproved
    return Solution(choice, status, name, bound, 2 * heuristics.work_units(instance) + work_units)


def listed_solution(instance: Instance) -> Solution | None:
    """The optimum of a small instance by listing all its assignments; None for a larger one."""
    total = assignments_max(instance)
    if total == 1:
        nothing = empty_choice(instance)
        objective = instance.score(nothing).triple
        return Solution(nothing, "optimal", "listing", objective, heuristics.work_units(instance))
    packed = pack(instance).triple if total <= ASSIGNMENTS_MAX else None
    if packed is None:
        return None
    choice = best_by_listing(instance, packed)
    work = total // STATES_PER_WORK_UNIT + heuristics.work_units(instance)
    return Solution(choice, "optimal", "listing", instance.score(choice).triple, work)
