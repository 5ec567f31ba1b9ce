"""The joint solvers: `exact`, and `auto`, which picks by size and returns the best plan that anything found.

Both start from the best heuristic plan, improved by local search. Where a cheap bound already proves that plan, no
search is run. Must not know the solver library (`tao.planning.search`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tao.planning import heuristics
from tao.planning.answer import Status
from tao.planning.basic import QuantisedDp, listed_solution
from tao.planning.bounds import cheap_bound, is_best
from tao.planning.dp import finest_lattice
from tao.planning.exact import ExactSearch
from tao.planning.instance import Instance, Ints
from tao.planning.local_search import improve
from tao.planning.packing import pack_triple
from tao.planning.problem import Triple
from tao.planning.search import Allowance, Search, load_cpsat
from tao.planning.solver import Solution, WorkLimit

WORK_UNITS_PER_DETERMINISTIC_SECOND = 5_000_000
DP_CELLS_MAX = 1 << 22
"""`auto` prefers the dynamic programme where it is exact (a quantum of 1) and takes some 20 ms at most."""

HEURISTICS: tuple[Callable[[Instance], Ints], ...] = (
    heuristics.value_first,
    heuristics.credit_density_first,
    heuristics.short_first_affinity,
    heuristics.best_fit_decreasing,
)


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The best plan without search: `choice` (n,), the work done, and the cheap bound."""

    choice: Ints
    work_units: int
    bound: Triple
    proved: bool


def warm_start(instance: Instance) -> Start:
    """The best of the heuristics, improved by local search."""
    choice = _best(instance, (heuristic(instance) for heuristic in HEURISTICS))
    work = (1 + len(HEURISTICS)) * heuristics.work_units(instance)
    packed = pack_triple(instance)
    if packed is not None:
        improved, climbing = improve(instance, choice, packed)
        choice, work = _best(instance, (choice, improved)), work + climbing
    bound = cheap_bound(instance)
    return Start(choice, work, bound, is_best(instance, choice, bound))


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
            return Solution(start.choice, "optimal", "local-search", start.bound, start.work_units)
        proof = ExactSearch(instance, self.load(), allowance).run(start.choice)
        work = start.work_units
        work += int(allowance.spent_deterministic_seconds * WORK_UNITS_PER_DETERMINISTIC_SECOND)
        status: Status = "optimal" if proof.proved else "feasible"
        return Solution(proof.choice, status, "exact", proof.bound, work)


class Auto:
    """`auto`: lists tiny instances, runs the dynamic programme where it is exact and fast, and searches the others.

    Never worse than any heuristic in `HEURISTICS` on any instance: the search starts from the best of them.
    """

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution:
        grid = finest_lattice(instance, DP_CELLS_MAX, quantum_max=1)
        if grid is not None and pack_triple(instance) is not None:
            return QuantisedDp().solve(instance, limit)
        return Exact().solve(instance, limit)


def _best(instance: Instance, choices: Iterable[Ints]) -> Ints:
    """The first of the best."""
    return max(choices, key=instance.score)
