"""The exact search where things do not go well: no work left, no proof, many sets of credited pairs, large pools."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from tao.planning import Item, Knapsack, Problem, SparseValues, WorkLimit, solve, verify
from tao.planning import exact as exact_module
from tao.planning.bounds import PRICE_BITS, cheap_bound, priced_bound
from tao.planning.cpsat import maximise
from tao.planning.exact import CREDITED_SETS_MAX, ExactSearch, Proof
from tao.planning.instance import Instance, Ints, compile_problem, empty_choice
from tao.planning.packing import Group, Level, pack
from tao.planning.portfolio import Exact, warm_start
from tao.planning.search import Allowance, AtLeast, SearchLimit, SearchResult
from tests.planning.pools import pool


class Scarce:
    """CP-SAT with a limit of its own on some of the searches: it runs out where a test wants it to."""

    def __init__(self, *searches: float) -> None:
        self._left = list(searches)
        self.calls = 0

    def __call__(
        self, instance: Instance, pairs: Any, objective: Ints, limit: SearchLimit, **more: Any
    ) -> SearchResult:
        self.calls += 1
        seconds = self._left.pop(0) if self._left else limit.deterministic_seconds
        return maximise(instance, pairs, objective, SearchLimit(seconds), **more)


def run(
    problem: Problem, search: Any, seconds: float = 10.0, start: Ints | None = None
) -> tuple[Instance, Proof]:
    instance = compile_problem(problem)
    first = warm_start(instance).choice if start is None else start
    proof = ExactSearch(instance, pack(instance), search, Allowance(seconds, None)).run(first)
    assert instance.score(proof.choice) >= instance.score(first)
    assert proof.bound >= instance.score(proof.choice).triple
    return instance, proof


def many_ties(items: int = 14, knapsacks: int = 3) -> Problem:
    """Every item has one token of credit everywhere: very many sets reach the best credit."""
    random = Random("ties")
    names = tuple(f"k{b}" for b in range(knapsacks))
    return Problem(
        tuple(Knapsack(b, 100) for b in names),
        tuple(
            Item(
                f"i{n:02}",
                weight := random.randint(10, 60),
                SparseValues(names, dict.fromkeys(names, 1), n % 2, weight),
                names[n % knapsacks],
            )
            for n in range(items)
        ),
    )


def test_many_credited_sets_are_searched_all_at_once() -> None:
    instance, proof = run(many_ties(), maximise)
    assert proof.proved
    assert proof.bound == instance.score(proof.choice).triple


def test_too_many_pairs_are_left_unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_module, "PAIRS_AT_ONCE_MAX", 10)
    instance, proof = run(many_ties(), maximise)
    assert not proof.proved
    assert proof.bound.credit == instance.score(proof.choice).credit


def test_the_number_of_credited_sets_is_bounded() -> None:
    search = Scarce()
    run(many_ties(18, 2), search)
    assert search.calls <= 2 + 2 * (CREDITED_SETS_MAX + 1)


@pytest.mark.parametrize("searches", [(0.0,), (10.0, 0.0), (10.0, 0.0, 0.0), (10.0, 10.0, 0.0), (1e-4, 1e-4)])
def test_a_search_that_runs_out_leaves_a_feasible_plan_and_true_bounds(searches: Sequence[float]) -> None:
    problem = pool(1, 60, 6)
    best = solve(problem, "exact")
    assert best.status == "optimal"
    for start in (None, empty_choice(compile_problem(problem))):
        instance, proof = run(problem, Scarce(*searches), start=start)
        assert proof.bound >= best.objective >= instance.score(proof.choice).triple


def test_aged_items_that_cannot_be_proved_stop_the_search() -> None:
    problem = pool(1, 60, 6)
    aged = Problem(
        problem.knapsacks,
        tuple(Item(i.id, i.weight_tokens, i.values, i.home, float(n)) for n, i in enumerate(problem.items)),
        wait_seconds_max=20.0,
    )
    instance, proof = run(aged, Scarce(0.0), start=empty_choice(compile_problem(aged)))
    assert not proof.proved
    answer = solve(aged, "exact")
    assert verify(aged, answer.assignment) == answer.objective
    assert instance.priority.sum() > 0


def test_no_work_at_all_is_still_an_answer() -> None:
    problem = pool(2, 60, 6)
    answer = solve(problem, "exact", WorkLimit(deterministic_seconds=0.0))
    assert answer.status == "feasible"
    assert verify(problem, answer.assignment) == answer.objective
    best = solve(problem, "exact")
    assert answer.bound >= best.objective >= answer.objective
    guarded = solve(problem, "exact", WorkLimit(seconds=1e-6))
    assert guarded.bound >= best.objective >= guarded.objective


def test_a_wall_clock_guard_with_time_to_spare_changes_nothing() -> None:
    problem = pool(2, 30, 3)
    aged = Problem(problem.knapsacks, problem.items, wait_seconds_max=0.0)
    for each in (problem, aged):
        free, guarded = solve(each, "exact"), solve(each, "exact", WorkLimit(seconds=60.0))
        assert free.assignment == guarded.assignment
        assert free.ageing == guarded.ageing


def test_one_pair_that_cannot_be_left_out() -> None:
    problem = Problem((Knapsack("a", 10),), (Item("i", 5, SparseValues(("a",), {"a": 3}, 0, 5)),))
    instance = compile_problem(problem)
    limit = SearchLimit(1.0)
    credit = instance.values[0]
    found = maximise(instance, instance.eligible, credit, limit)
    assert found.choice is not None
    assert (found.proved, found.bound, found.choice.tolist()) == (True, 3, [0])
    other = maximise(
        instance, instance.eligible, credit, limit, excluded=[found.choice], at_least=[AtLeast(credit, 3)]
    )
    assert (other.proved, other.choice, other.bound) == (True, None, None)


def test_ceilings_of_a_group_follow_its_levels() -> None:
    one = np.ones((1, 1), dtype=np.int64)
    group = Group((Level(one, 0, 9), Level(one, 0, 99), Level(one, -4, 2)), (700, 7, 1), one)
    assert group.ceilings(5 * 700 + 40 * 7 + 2, (5, 40, 2)) == [5, 40, 2]
    assert group.ceilings(5 * 700 + 40 * 7 + 2, (4, 40, 2)) == [5, 99, 2]
    assert group.ceilings(5 * 700 + 40 * 7 - 4, (5, 38, 2)) == [5, 40, 2]
    assert group.ceilings(50 * 700, (4, 0, 0)) == [9, 99, 2]


def test_bounds_stay_exact_where_int64_would_overflow() -> None:
    problem = pool(3, 12, 3)
    instance = compile_problem(problem)
    huge = instance.values[0] << 22
    prices = [1 << PRICE_BITS] * 3
    assert priced_bound(instance, huge, prices) >= priced_bound(instance, instance.values[0], prices)
    small = priced_bound(instance, instance.values[2], prices)
    assert priced_bound(instance, instance.values[2] << 22, [p << 22 for p in prices]) >> 22 == small
    assert cheap_bound(instance).credit >= solve(problem, "exact").objective.credit


def test_no_search_is_run_where_cheap_bounds_prove_the_plan() -> None:
    problem = pool(4, 40, 4)
    roomy = Problem(
        tuple(Knapsack(k.id, 10_000_000) for k in problem.knapsacks),
        tuple(Item(i.id, i.weight_tokens, i.values) for i in problem.items),
    )

    def never() -> Any:
        raise AssertionError("searched")

    solution = Exact(load=never).solve(compile_problem(roomy), WorkLimit())
    assert (solution.status, solution.solver) == ("optimal", "local-search")
    assert solution.bound == solve(roomy, "auto").objective


@pytest.mark.parametrize("seconds", [1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2])
def test_every_amount_of_work_gives_a_plan_and_true_bounds(seconds: float) -> None:
    problem = pool(1, 100, 8)
    best = solve(problem, "exact")
    assert best.status == "optimal"
    instance, proof = run(problem, maximise, seconds)
    assert proof.bound >= best.objective >= instance.score(proof.choice).triple
    answer = solve(problem, "exact", WorkLimit(deterministic_seconds=seconds))
    assert answer.bound >= best.objective >= answer.objective
    assert verify(problem, answer.assignment) == answer.objective


def test_work_that_runs_out_between_searches() -> None:
    problem = pool(1, 100, 8)
    for spent_after in (1, 2, 3):
        allowance = Allowance(10.0, None)
        calls = 0

        def search(*arguments: Any, **more: Any) -> SearchResult:
            nonlocal calls
            calls += 1
            result = maximise(*arguments, **more)
            used = 10.0 if calls == spent_after else 0.0  # noqa: B023 - called within this turn of the loop only
            return SearchResult(result.choice, result.bound, used, result.proved)

        instance = compile_problem(problem)
        packing = pack(instance)
        proof = ExactSearch(instance, packing, search, allowance).run(empty_choice(instance))
        assert calls <= spent_after
        assert proof.bound >= instance.score(proof.choice).triple
