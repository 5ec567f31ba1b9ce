"""The joint solvers: `exact`, and `auto`, which picks by size and returns the best plan that anything found.

Both start from the best heuristic plan, improved by local search. Where a cheap bound already proves that plan, no
search is run. Must not know the solver library (`tao.planning.search`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tao.planning import heuristics
from tao.planning.basic import QuantisedDp, listed_solution
from tao.planning.bounds import is_best, tightened
from tao.planning.dp import finest_lattice
from tao.planning.exact import ExactSearch
from tao.planning.instance import Instance, Ints
from tao.planning.local_search import improve
from tao.planning.packing import Packing, pack
from tao.planning.search import Allowance, Search, load_cpsat
from tao.planning.solver import Solution, WorkLimit

WORK_UNITS_PER_DETERMINISTIC_SECOND = 4_000_000
DP_CELLS_MAX = 1 << 22
"""`auto` prefers the dynamic programme where it is exact (a quantum of 1) and takes some 20 ms at most."""

HEURISTICS: tuple[Callable[[Instance], Ints], ...] = (
    heuristics.value_first,
    heuristics.credit_density_first,
    heuristics.most_ready,
    heuristics.short_first_affinity,
    heuristics.best_fit_decreasing,
)


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The best plan without search: `choice` (n,), the work done, and whether the cheap bound proves it."""

    choice: Ints
    work_units: int
    packing: Packing
    proved: bool


def warm_start(instance: Instance) -> Start:
    """The best of the heuristics, improved by local search."""
    choice = _best(instance, (heuristic(instance) for heuristic in HEURISTICS))
    work = (1 + len(HEURISTICS)) * heuristics.work_units(instance)
    packing = pack(instance)
    if packing.triple is not None:
        choice, climbing = improve(instance, choice, packing.triple)
        work += climbing
    return Start(choice, work, packing, is_best(instance, choice, packing.bound))


@dataclass(frozen=True, slots=True)
class Exact:
    """`exact`: proved on raw tokens, coordinate after coordinate (`tao.planning.exact`)."""

    load: Callable[[], Search] = field(default=load_cpsat)

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:
        listed = listed_solution(instance)
        if listed is not None:
            return listed
        allowance = Allowance(limit.deterministic_seconds, limit.seconds)
        start = warm_start(instance)
        if start.proved:
            return Solution(start.choice, "optimal", "local-search", start.packing.bound, start.work_units)
        proof = ExactSearch(instance, start.packing, self.load(), allowance).run(start.choice)
        work = start.work_units
        work += int(allowance.spent_deterministic_seconds * WORK_UNITS_PER_DETERMINISTIC_SECOND)
        if proof.proved:
            return Solution(proof.choice, "optimal", "exact", proof.bound, work)
        bound = tightened(instance, instance.score(proof.choice).triple, proof.bound)
        return Solution(proof.choice, "feasible", "exact", bound, work)


class Auto:
    """`auto`: lists tiny instances, runs the dynamic programme where it is exact and fast, and searches the others.

    Never worse than any heuristic in `HEURISTICS` on any instance: the search starts from the best of them.
    """

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:
        listed = listed_solution(instance)
        if listed is not None:
            return listed
        grid = finest_lattice(instance, DP_CELLS_MAX, quantum_max=1)
        if grid is not None and pack(instance).triple is not None:
            return QuantisedDp().solve(instance, limit)
        return Exact().solve(instance, limit)


def _best(instance: Instance, choices: Iterable[Ints]) -> Ints:
    """The first of the best."""
    return max(choices, key=instance.score)
