"""Differential tests: every solver that claims an optimum, against trying every assignment."""

from random import Random

import pytest

from tao.planning import Problem, solve, verify
from tao.planning.cpsat import maximise
from tao.planning.dp import finest_lattice, lattice, solve_lattice
from tao.planning.exact import ExactSearch
from tao.planning.instance import compile_problem, empty_choice
from tao.planning.packing import pack
from tao.planning.portfolio import warm_start
from tao.planning.search import Allowance
from tests.planning.brute_force import best_triple, quantised
from tests.planning.pools import all_tiny_problems, random_problem

PARTS = 8


def searched(problem: Problem, *, warm: bool) -> tuple[int, int, int]:
    """The exact search itself, which `exact` spares small instances."""
    instance = compile_problem(problem)
    start = warm_start(instance).choice if warm else empty_choice(instance)
    proof = ExactSearch(instance, pack(instance), maximise, Allowance(10.0, None)).run(start)
    assert proof.proved
    assert instance.score(proof.choice).triple == proof.bound
    return proof.bound


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_tiny_problems(part: int) -> None:
    problems = [p for n, p in enumerate(all_tiny_problems()) if n % PARTS == part]
    assert len(problems) * PARTS > 20_000
    for problem in problems:
        best = best_triple(problem)
        answer = solve(problem, "exact")
        assert (answer.status, answer.objective) == ("optimal", best), problem
        assert verify(problem, answer.assignment) == best
        instance = compile_problem(problem)
        result = solve_lattice(instance, lattice(instance, 1))
        assert result is not None
        assert instance.score(result.choice).triple == best, problem


@pytest.mark.slow
def test_the_search_itself_on_a_spread_of_tiny_problems() -> None:
    for n, problem in enumerate(all_tiny_problems()):
        if n % 61 == 0:
            assert searched(problem, warm=n % 2 == 0) == best_triple(problem), problem


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_problems(part: int) -> None:
    random = Random(f"exact/{part}")
    for _ in range(2_000 // PARTS):
        problem = random_problem(random, random.randint(1, 8), random.randint(1, 3))
        best = best_triple(problem)
        for solver in ("exact", "auto"):
            answer = solve(problem, solver)
            assert (answer.status, answer.objective, answer.bound) == ("optimal", best, best), problem
            assert verify(problem, answer.assignment) == best


@pytest.mark.slow
@pytest.mark.parametrize("quantum", [1, 2, 3, 5])
def test_dp_is_exact_on_the_rounded_problem(quantum: int) -> None:
    random = Random(f"dp/{quantum}")
    for _ in range(150):
        problem = random_problem(random, random.randint(1, 7), random.randint(1, 3))
        instance = compile_problem(problem)
        result = solve_lattice(instance, lattice(instance, quantum))
        assert result is not None
        answer = {
            instance.item_ids[i]: instance.knapsack_ids[result.choice[i]]
            for i in instance.plan_order(result.choice)
        }
        assert verify(problem, answer) == best_triple(quantised(problem, quantum)), problem


def test_dp_takes_the_finest_quantum_within_its_budget() -> None:
    problem = random_problem(Random("budget"), 8, 3)
    instance = compile_problem(problem)
    cells = [lattice(instance, quantum).cells for quantum in range(1, 31)]
    assert cells == sorted(cells, reverse=True)
    for budget in (cells[0], cells[0] - 1, cells[5], cells[-1]):
        grid = finest_lattice(instance, budget, 30)
        assert grid is not None
        assert grid.quantum == next(q for q, c in enumerate(cells, start=1) if c <= budget)
    assert finest_lattice(instance, cells[-1] - 1, 30) is None
