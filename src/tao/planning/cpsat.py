"""The one place that speaks to OR-Tools: choose pairs (item, knapsack) that maximise an integer sum.

Imported only where a search is really run: the import costs half a second. One thread, a fixed seed and a limit in
CP-SAT's deterministic time make a search repeatable; a wall-clock limit, where one is set, does not. Must not know
the order of coordinates, nor who asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, nextafter

import numpy as np
from ortools.sat.python import cp_model

from tao.planning.instance import SKIP, Instance, Ints, Mask, empty_choice
from tao.planning.search import AtLeast, SearchLimit, SearchResult


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    model: cp_model.CpModel
    variables: list[cp_model.IntVar]
    items: Ints
    bins: Ints


def maximise(
    instance: Instance,
    pairs: Mask,
    objective: Ints,
    limit: SearchLimit,
    *,
    hint: Ints | None = None,
    at_least: Sequence[AtLeast] = (),
    excluded: Sequence[Ints] = (),
    enough: int | None = None,
) -> SearchResult:
    """Maximise the summed `objective` (n, m) over assignments that use `pairs` only.

    `hint` (n,) is where the search starts. `excluded` lists assignments (n,) whose pairs of positive objective may not
    all come back as they are. The search ends early once it knows whether a sum of `enough` can be reached.
    """
    built = _build(instance, pairs)
    variables = built.variables
    coefficients = objective[built.items, built.bins]
    built.model.maximize(cp_model.LinearExpr.weighted_sum(variables, coefficients.tolist()))
    for row in at_least:
        values = row.values[built.items, built.bins].tolist()
        built.model.add(cp_model.LinearExpr.weighted_sum(variables, values) >= row.least)
    for choice in excluded:
        chosen = (choice[built.items] == built.bins).tolist()
        differ = zip(variables, chosen, (coefficients > 0).tolist(), strict=True)
        built.model.add_bool_or([~x if c else x for x, c, counts in differ if counts])
    if hint is not None:
        for x, c in zip(variables, (hint[built.items] == built.bins).tolist(), strict=True):
            built.model.add_hint(x, c)
    return _run(instance, built, limit, enough, int(np.maximum(coefficients, 0).sum()))


def _build(instance: Instance, pairs: Mask) -> _Model:
    """One Boolean for each pair; each item once; capacities and slots where they can run out."""
    model = cp_model.CpModel()
    items, bins = np.nonzero(pairs)
    variables = [model.new_bool_var("") for _ in range(len(items))]
    of_item: dict[int, list[cp_model.IntVar]] = {}
    for x, i in zip(variables, items.tolist(), strict=True):
        of_item.setdefault(i, []).append(x)
    for several in of_item.values():
        if len(several) > 1:
            model.add_at_most_one(several)
    for b in range(instance.shape[1]):
        inside = np.flatnonzero(bins == b)
        weights = instance.weights[items[inside]]
        here = [variables[p] for p in inside.tolist()]
        if int(weights.sum()) > instance.capacities[b]:
            total = cp_model.LinearExpr.weighted_sum(here, weights.tolist())
            model.add(total <= int(instance.capacities[b]))
        if len(here) > instance.slots[b]:
            model.add(cp_model.LinearExpr.sum(here) <= int(instance.slots[b]))
    return _Model(model, variables, items, bins)


class _BoundWatch:
    """The lowest upper bound reported; ends the search once `enough` is out of reach."""

    def __init__(self, solver: cp_model.CpSolver, ceiling: int, enough: int | None) -> None:
        self.bound = ceiling
        self._solver = solver
        self._enough = enough

    def __call__(self, bound: float) -> None:
        # A double may have lost the last digits of a large integer: the next one up is on the safe side.
        self.bound = min(self.bound, floor(nextafter(bound, inf)))
        if self._enough is not None and self.bound < self._enough:
            self._solver.stop_search()


def _run(
    instance: Instance, built: _Model, limit: SearchLimit, enough: int | None, ceiling: int
) -> SearchResult:
    solver = cp_model.CpSolver()
    watch = _BoundWatch(solver, ceiling, enough)
    solver.best_bound_callback = watch
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = 0
    parameters.linearization_level = 2
    parameters.max_deterministic_time = limit.deterministic_seconds
    if limit.seconds is not None:
        parameters.max_time_in_seconds = max(0.001, limit.seconds)
    status = solver.solve(built.model)
    assert status != cp_model.MODEL_INVALID, built.model.validate()
    spent = float(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return SearchResult(None, None, spent, proved=True)
    if status == cp_model.UNKNOWN:
        return SearchResult(None, watch.bound, spent, proved=False)
    choice = empty_choice(instance)
    for x, i, b in zip(built.variables, built.items.tolist(), built.bins.tolist(), strict=True):
        if solver.boolean_value(x):
            assert choice[i] == SKIP
            choice[i] = b
    # CP-SAT minimises inside; a search that ends before it has a bound reports zero, which is none.
    inner = -int(solver.response_proto.inner_objective_lower_bound)
    has_bound = status == cp_model.OPTIMAL or inner > round(solver.objective_value)
    bound = min(watch.bound, inner) if has_bound else watch.bound
    return SearchResult(choice, bound, spent, proved=status == cp_model.OPTIMAL)
