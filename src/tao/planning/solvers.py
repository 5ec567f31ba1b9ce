"""The solvers by name, and `solve`, the one way in.

Every solver takes an `Instance` and a `WorkLimit` and returns a `Solution`; `solve` turns that into an `Answer` in the
caller's ids. Names are kebab-case. A solver is deterministic unless a wall-clock limit stops it.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from tao.planning import heuristics
from tao.planning.answer import Ageing, Answer, Status
from tao.planning.bounds import cheap_bound
from tao.planning.dp import (
    CELLS_PER_WORK_UNIT,
    QUANTUM_MAX_TOKENS,
    STATE_BUDGET,
    finest_lattice,
    is_lossless,
    solve_lattice,
)
from tao.planning.instance import SKIP, Instance, Ints, compile_problem
from tao.planning.listing import ASSIGNMENTS_MAX, STATES_PER_WORK_UNIT, assignments_max, best_by_listing
from tao.planning.packing import pack
from tao.planning.problem import Problem, Triple


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """How long a search may go on; the deterministic limits of a solver apply in any case.

    `seconds` is a wall-clock guard for live use: two runs may then differ.
    """

    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solver's answer in indices: `choice` (n,), and the certificate fields of `Answer`."""

    choice: Ints
    status: Status
    solver: str
    bound: Triple
    work_units: int
    quantum_tokens: int | None = None


class Solver(Protocol):
    """Finds an assignment; always returns a feasible one, and says what it has proved."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution: ...


class UnknownSolverError(ValueError):
    """A solver name that is not in `SOLVERS`."""


class BestFitDecreasing:
    """`bfd`: heaviest first, tightest fit; blind to values."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - it never runs long
        return _heuristic(instance, heuristics.best_fit_decreasing(instance), "bfd")


class Greedy:
    """`greedy`: lightest first, to the knapsack with the most credit (the paper's Appendix H)."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - it never runs long
        return _heuristic(instance, heuristics.short_first_affinity(instance), "greedy")


@dataclass(frozen=True, slots=True)
class QuantisedDp:
    """`dp`: equation 7 at the finest quantum within `state_budget`; best-fit-decreasing beyond it.

    Where there are fewer assignments than states they are listed instead: the same optimum, at a quantum of 1.
    """

    state_budget: int = STATE_BUDGET
    quantum_max: int = QUANTUM_MAX_TOKENS

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:  # noqa: ARG002 - bounded by its budget
        listed = _listing(instance, "dp")
        if listed is not None:
            return listed
        grid = finest_lattice(instance, self.state_budget, self.quantum_max)
        result = None if grid is None else solve_lattice(instance, grid)
        if grid is None or result is None:
            return _heuristic(instance, heuristics.best_fit_decreasing(instance), "bfd", unproved="fallback")
        objective = instance.score(result.choice).triple
        bound = objective if is_lossless(instance, grid) else cheap_bound(instance)
        work = result.cells // CELLS_PER_WORK_UNIT + heuristics.work_units(instance)
        status: Status = "optimal" if bound == objective else "feasible"
        return Solution(result.choice, status, "dp", bound, work, grid.quantum)


SOLVERS: dict[str, type[Solver]] = {
    "dp": QuantisedDp,
    "bfd": BestFitDecreasing,
    "greedy": Greedy,
}


def solve(problem: Problem, solver: str = "dp", limit: WorkLimit | None = None) -> Answer:
    """Solve by the solver named (`SOLVERS`), or raise `UnknownSolverError`.

    Deterministic, and independent of the order of items and knapsacks, unless `limit` sets a wall-clock guard.
    """
    if solver not in SOLVERS:
        raise UnknownSolverError(f"no solver is named {solver!r}; there are {', '.join(sorted(SOLVERS))}")
    started = perf_counter()
    limit = limit or WorkLimit()
    chosen = SOLVERS[solver]()
    instance = compile_problem(problem)
    solution = chosen.solve(instance, limit)
    ageing, extra_work = None, 0
    if instance.priority.any():
        unaged = chosen.solve(instance.without_priority(), limit)
        ageing = _price(instance, solution.choice, unaged.choice)
        extra_work = unaged.work_units
    return Answer(
        status=solution.status,
        solver=solution.solver,
        assignment={
            instance.item_ids[i]: instance.knapsack_ids[solution.choice[i]]
            for i in instance.plan_order(solution.choice)
        },
        objective=instance.score(solution.choice).triple,
        bound=solution.bound,
        moves=instance.moves(solution.choice),
        work_units=solution.work_units + extra_work,
        elapsed_seconds=perf_counter() - started,
        quantum_tokens=solution.quantum_tokens,
        ageing=ageing,
    )


def is_small(problem: Problem) -> bool:
    """Whether solving here (`dp` or `auto`, about a millisecond) costs less than a trip to another process.

    True where at most `ASSIGNMENTS_MAX` assignments exist when capacities are ignored, so that they can be listed:
    for example 6 items x 3 knapsacks, 12 x 1, or one item x 64.
    """
    total = 1
    for item in problem.items:
        total *= len(item.values) + 1
        if total > ASSIGNMENTS_MAX:
            return False
    return True


def _listing(instance: Instance, name: str) -> Solution | None:
    """Solve by listing all assignments, where they are few."""
    total = assignments_max(instance)
    if total > ASSIGNMENTS_MAX:
        return None
    packed = pack(instance)
    if packed is None:
        return None
    choice = best_by_listing(instance, packed)
    work = total // STATES_PER_WORK_UNIT + heuristics.work_units(instance)
    return Solution(choice, "optimal", name, instance.score(choice).triple, work, quantum_tokens=1)


def _heuristic(instance: Instance, choice: Ints, name: str, unproved: Status = "feasible") -> Solution:
    """A heuristic's answer with the cheap bound, which sometimes proves it optimal."""
    bound = cheap_bound(instance)
    proved = not instance.priority.any() and instance.score(choice).triple == bound
    work = 2 * heuristics.work_units(instance)
    return Solution(choice, "optimal" if proved else unproved, name, bound, work)


def _price(instance: Instance, choice: Ints, unaged: Ints) -> Ageing:
    """What the leading coordinate costs in the others."""
    aged = [int(i) for i in (-instance.priority).argsort(kind="stable") if instance.priority[i] > 0]
    with_it, without_it = instance.score(choice).triple, instance.score(unaged).triple
    return Ageing(
        aged=tuple(instance.item_ids[i] for i in aged),
        placed=tuple(instance.item_ids[i] for i in aged if choice[i] != SKIP),
        price=Triple(*(b - a for a, b in zip(with_it, without_it, strict=True))),
    )
