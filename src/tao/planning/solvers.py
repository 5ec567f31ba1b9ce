"""The solvers by name, and `solve`, the one way in.

`solve` compiles the problem, runs the solver and answers in the caller's ids. With aged items it solves once more
without ageing, to report the price. Names are kebab-case.
"""

from time import perf_counter

from tao.planning.answer import Ageing, Answer
from tao.planning.basic import BestFitDecreasing, Greedy, QuantisedDp
from tao.planning.instance import SKIP, Instance, Ints, compile_problem
from tao.planning.listing import ASSIGNMENTS_MAX
from tao.planning.portfolio import Auto, Exact
from tao.planning.problem import Problem, Triple
from tao.planning.solver import Solver, WorkLimit


class UnknownSolverError(ValueError):
    """A solver name that is not in `SOLVERS`."""


SOLVERS: dict[str, type[Solver]] = {
    "auto": Auto,
    "dp": QuantisedDp,
    "exact": Exact,
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
        unaged = chosen.solve(instance.without_priority(), _rest(limit, started))
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


def _rest(limit: WorkLimit, started: float) -> WorkLimit:
    if limit.seconds is None:
        return limit
    return WorkLimit(limit.deterministic_seconds, max(0.0, limit.seconds - (perf_counter() - started)))


def _price(instance: Instance, choice: Ints, unaged: Ints) -> Ageing:
    """What the leading coordinate costs in the others."""
    aged = [int(i) for i in (-instance.priority).argsort(kind="stable") if instance.priority[i] > 0]
    with_it, without_it = instance.score(choice).triple, instance.score(unaged).triple
    return Ageing(
        aged=tuple(instance.item_ids[i] for i in aged),
        placed=tuple(instance.item_ids[i] for i in aged if choice[i] != SKIP),
        price=Triple(*(b - a for a, b in zip(with_it, without_it, strict=True))),
    )
