"""What must hold for every solver on every problem: feasible, certified, never worse, blind to names and order."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tao.planning import SOLVERS, Item, Knapsack, Problem, Triple, is_small, solve, verify
from tao.planning.bounds import cheap_bound
from tao.planning.instance import compile_problem
from tao.planning.local_search import improve
from tao.planning.packing import pack
from tao.planning.portfolio import HEURISTICS
from tests.planning.brute_force import best_triple
from tests.planning.pools import pool, random_problem

SEARCHING = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUICK = settings(max_examples=60, deadline=None)


@st.composite
def problems(draw: st.DrawFn, items_max: int = 9, knapsacks_max: int = 4) -> Problem:
    seed = draw(st.integers(0, 2**32))
    items, knapsacks = draw(st.integers(0, items_max)), draw(st.integers(0, knapsacks_max))
    return random_problem(Random(seed), items, knapsacks)


@given(problems())
@QUICK
def test_every_solver_is_feasible_certified_and_bounded(problem: Problem) -> None:
    answers = {name: solve(problem, name) for name in SOLVERS}
    best = answers["exact"].objective
    assert answers["exact"].status == "optimal"
    for name, answer in answers.items():
        assert verify(problem, answer.assignment) == answer.objective, name
        assert all(o <= b for o, b in zip(answer.objective, answer.bound, strict=True)), name
        assert answer.objective <= best, name
        assert answer.bound >= best, name
        assert answer.work_units >= 0
        if answer.status == "optimal":
            assert answer.objective == best, name
    assert answers["auto"].objective == best


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_pools_are_certified_and_auto_is_never_worse(solver: str) -> None:
    for seed, (items, knapsacks) in enumerate([(40, 4), (30, 1), (25, 2), (60, 8)]):
        problem = pool(seed, items, knapsacks)
        answer, best = solve(problem, solver), solve(problem, "auto")
        assert verify(problem, answer.assignment) == answer.objective <= best.objective
        assert best.status == "optimal"
        assert answer.bound >= best.objective


@given(problems(items_max=12))
@QUICK
def test_local_search_and_the_portfolio_never_lose(problem: Problem) -> None:
    instance = compile_problem(problem)
    answer = solve(problem, "auto")
    packed = pack(instance).triple
    assert packed is not None
    for heuristic in HEURISTICS:
        start = heuristic(instance)
        improved, _ = improve(instance, start, packed)
        assert instance.score(improved) >= instance.score(start)
        assert answer.objective >= instance.score(improved).triple
        free, slots = instance.free(improved)
        assert (free >= 0).all()
        assert (slots >= 0).all()


@given(problems(items_max=5, knapsacks_max=3))
@QUICK
def test_cheap_bounds_hold(problem: Problem) -> None:
    bound = cheap_bound(compile_problem(problem))
    best = best_triple(problem)
    assert best.credit <= bound.credit
    for coordinate in range(3):
        alone = replace(problem, items=tuple(_only(item, coordinate) for item in problem.items))
        assert best_triple(alone).credit <= bound[coordinate]


def _only(item: Item, coordinate: int) -> Item:
    return replace(item, values={b: Triple(v[coordinate], 0, 0) for b, v in item.values.items()})


@given(problems(items_max=10), st.integers(0, 3), st.integers(0, 40))
@SEARCHING
def test_more_capacity_is_never_worse(problem: Problem, which: int, more: int) -> None:
    knapsacks = tuple(
        replace(k, capacity_tokens=k.capacity_tokens + more) if b == which else k
        for b, k in enumerate(problem.knapsacks)
    )
    larger = replace(problem, knapsacks=knapsacks)
    assert solve(larger, "exact").objective >= solve(problem, "exact").objective


@given(problems(items_max=10), st.integers(0, 9))
@SEARCHING
def test_an_item_less_is_never_better(problem: Problem, which: int) -> None:
    fewer = replace(problem, items=tuple(item for i, item in enumerate(problem.items) if i != which))
    assert solve(fewer, "exact").objective <= solve(problem, "exact").objective


@given(problems(items_max=10), st.randoms(use_true_random=False))
@SEARCHING
def test_names_do_not_change_the_objective(problem: Problem, random: Random) -> None:
    names = [f"n{b}" for b in range(len(problem.knapsacks))]
    random.shuffle(names)
    renamed = dict(zip((k.id for k in problem.knapsacks), names, strict=True))
    order = list(range(len(problem.items)))
    random.shuffle(order)
    items = tuple(
        replace(
            item,
            id=f"x{order[i]}",
            values={renamed[b]: v for b, v in item.values.items()},
            home=renamed.get(item.home or "", item.home),
        )
        for i, item in enumerate(problem.items)
    )
    relabelled = Problem(tuple(replace(k, id=renamed[k.id]) for k in problem.knapsacks), items)
    for solver in ("exact", "auto"):
        assert solve(relabelled, solver).objective == solve(problem, solver).objective


@given(problems(items_max=10), st.randoms(use_true_random=False))
@SEARCHING
def test_order_of_the_input_changes_nothing(problem: Problem, random: Random) -> None:
    items, knapsacks = list(problem.items), list(problem.knapsacks)
    random.shuffle(items)
    random.shuffle(knapsacks)
    shuffled = replace(problem, items=tuple(items), knapsacks=tuple(knapsacks))
    for solver in SOLVERS:
        one, other = solve(problem, solver), solve(shuffled, solver)
        assert list(one.assignment.items()) == list(other.assignment.items()), solver
        assert one.work_units == other.work_units


def test_ties_end_at_home() -> None:
    value = Triple(0, 0, 5)
    everywhere = {"a": value, "b": value, "c": value}
    knapsacks = (Knapsack("a", 10), Knapsack("b", 10), Knapsack("c", 10))
    items = tuple(
        Item(f"i{n}", 5, everywhere, home) for n, home in enumerate(("c", "b", "c", None, "a", "a"))
    )
    for solver in ("exact", "dp", "auto"):
        answer = solve(Problem(knapsacks, items), solver)
        assert answer.moves == 0
        assert [answer.assignment[f"i{n}"] for n in (0, 1, 2, 4, 5)] == ["c", "b", "c", "a", "a"]


def test_plans_are_in_order_of_value_then_id() -> None:
    items = tuple(
        Item(i, 1, {"a": v})
        for i, v in (("z", Triple(0, 1, 5)), ("y", Triple(2, 0, 1)), ("b", Triple(0, 1, 5)))
    )
    assert list(solve(Problem((Knapsack("a", 9),), items)).assignment) == ["y", "b", "z"]


def test_small_problems_are_those_that_are_listed() -> None:
    random = Random("small")
    assert is_small(random_problem(random, 6, 3))
    assert is_small(pool(1, 1, 64))
    assert not is_small(pool(1, 40, 4))
    assert solve(pool(1, 6, 3), "dp").solver == "listing"
