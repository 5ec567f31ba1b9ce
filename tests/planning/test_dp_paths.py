"""The dynamic programme beyond small problems: grouping, repair, slots, its budget, values too large to pack."""

from dataclasses import replace

import pytest

from tao.planning import Item, Knapsack, Problem, SparseValues, Triple, WorkLimit, solve, verify
from tao.planning.basic import QuantisedDp
from tao.planning.dp import is_lossless, lattice
from tao.planning.grouping import group_equivalent, unpack
from tao.planning.instance import SKIP, compile_problem
from tao.planning.packing import levels, pack
from tao.planning.problem import VALUE_MAX
from tests.planning.pools import pool


def equal_knapsacks(weights: list[int], capacities: list[int], slots: int | None = None) -> Problem:
    """Knapsacks that no value tells apart."""
    names = tuple(f"k{b}" for b in range(len(capacities)))
    items = tuple(
        Item(f"i{n:02}", weight, SparseValues(names, {}, n % 2, weight), home=names[n % len(names)])
        for n, weight in enumerate(weights)
    )
    return Problem(tuple(Knapsack(b, c, slots) for b, c in zip(names, capacities, strict=True)), items)


def test_equivalent_knapsacks_become_one_axis() -> None:
    instance = compile_problem(equal_knapsacks([3, 4, 5, 6, 7], [10, 8, 9]))
    groups = group_equivalent(instance)
    assert groups is not None
    assert groups.instance.shape == (5, 1)
    assert groups.instance.capacities.tolist() == [27]
    assert [members.tolist() for members in groups.members] == [[0, 1, 2]]


def test_an_item_too_heavy_for_one_does_not_tell_knapsacks_apart() -> None:
    problem = equal_knapsacks([3, 9], [10, 4])
    assert group_equivalent(compile_problem(problem)) is not None
    different = replace(problem.items[0], values={"k0": Triple(1, 0, 3), "k1": Triple(0, 0, 3)})
    assert group_equivalent(compile_problem(replace(problem, items=(different, problem.items[1])))) is None


def test_a_grouped_answer_is_packed_home_first() -> None:
    instance = compile_problem(equal_knapsacks([5, 5, 5, 5], [10, 10]))
    groups = group_equivalent(instance)
    assert groups is not None
    choice, intact = unpack(instance, groups, groups.instance.home * 0)
    assert intact
    assert choice.tolist() == [0, 1, 0, 1]
    assert instance.moves(choice) == 0


def test_a_grouped_answer_that_does_not_pack_is_repaired() -> None:
    problem = equal_knapsacks([6, 6, 6] + [5] * 10, [9, 9])
    instance = compile_problem(problem)
    groups = group_equivalent(instance)
    assert groups is not None
    all_three = groups.instance.home * 0 + SKIP
    all_three[:3] = 0
    choice, intact = unpack(instance, groups, all_three)
    assert not intact
    assert instance.score(choice).triple == (0, 2, 11)  # two find room: local search takes ready ones
    solution = QuantisedDp(state_budget=13 * 19).solve(instance, WorkLimit())
    assert (solution.solver, solution.status, solution.quantum_tokens) == ("dp", "feasible", 1)
    assert verify_choice(problem, solution.choice.tolist()) == (0, 2, 11)


def verify_choice(problem: Problem, choice: list[int]) -> Triple:
    instance = compile_problem(problem)
    return verify(
        problem,
        {instance.item_ids[i]: instance.knapsack_ids[b] for i, b in enumerate(choice) if b != SKIP},
    )


def test_grouping_reaches_where_one_axis_each_does_not() -> None:
    problem = equal_knapsacks([700 + 13 * n for n in range(30)], [5_000 + 100 * b for b in range(8)])
    answer = solve(problem, "dp")
    assert (answer.status in {"optimal", "feasible"}, answer.solver) == (True, "dp")
    assert answer.objective.footprint >= 0.99 * answer.bound.footprint


def test_slots_are_a_second_resource() -> None:
    problem = equal_knapsacks([3] * 14, [40, 40], slots=3)
    for solver in ("dp", "exact", "auto", "bfd", "greedy"):
        answer = solve(problem, solver)
        assert len(answer.assignment) == 6, solver
        assert verify(problem, answer.assignment) == answer.objective
    closed = Problem((Knapsack("a", 9, slots=0),), (Item("i", 1, {"a": Triple(1, 1, 1)}),))
    assert solve(closed, "dp").assignment == {}


@pytest.mark.parametrize("full_at", [0, 1, 69])
@pytest.mark.parametrize("slots", [None, 2])
def test_more_knapsacks_than_an_array_has_axes_most_of_them_full(full_at: int, slots: int | None) -> None:
    names = [f"k{b:02}" for b in range(70)]
    with_room = {names[full_at - 1]: 60, names[full_at - 2]: 47}
    knapsacks = tuple(Knapsack(name, with_room.get(name, 2), slots) for name in names)
    items = tuple(
        Item(
            f"i{n}",
            5 + 3 * n,
            SparseValues(tuple(names), {names[full_at - 1 - n % 2]: 10 * n}, n % 2, 5 + 3 * n),
        )
        for n in range(16)
    )
    problem = Problem(knapsacks, items)
    best = solve(problem, "exact").objective
    solution = QuantisedDp(state_budget=1 << 20).solve(compile_problem(problem), WorkLimit())
    assert (solution.solver, solution.status, solution.quantum_tokens) == ("dp", "optimal", 1)
    assert verify_choice(problem, solution.choice.tolist()) == best == solve(problem, "auto").objective


def test_beyond_the_budget_best_fit_decreasing_answers() -> None:
    problem = pool(1, 60, 8)
    answer = solve(problem, "dp")
    assert (answer.status, answer.solver, answer.quantum_tokens) == ("fallback", "bfd", None)
    assert answer.assignment == solve(problem, "bfd").assignment


def test_rounding_that_loses_nothing_is_optimal() -> None:
    weights = [2_000 * (2 + n % 5) for n in range(20)]
    problem = equal_knapsacks(weights, [40_000, 30_000])
    instance = compile_problem(problem)
    assert is_lossless(instance, lattice(instance, 2_000))
    assert not is_lossless(instance, lattice(instance, 3_000))
    solution = QuantisedDp(state_budget=30_000).solve(instance, WorkLimit())
    assert solution.quantum_tokens is not None
    assert solution.status in {"optimal", "feasible"}
    ample = compile_problem(equal_knapsacks([4, 6], [11]))
    assert is_lossless(ample, lattice(ample, 2))


def test_values_past_62_bits_are_maximised_group_after_group() -> None:
    names = ("a", "b")
    items = tuple(
        Item(f"i{n:02}", 10 + n, SparseValues(names, {"a": VALUE_MAX - n * n}, n % 2, VALUE_MAX - 7 * n), "b")
        for n in range(14)
    )
    problem = Problem((Knapsack("a", 40), Knapsack("b", 55)), items)
    instance = compile_problem(problem)
    packing = pack(instance)
    assert packing.triple is None
    groups = packing.groups
    assert sum(len(group.levels) for group in groups) == len(levels(instance))
    assert len(groups) > 1
    fallback = solve(problem, "dp")
    assert fallback.status == "fallback"
    answer = solve(problem, "exact")
    assert answer.status == "optimal"
    smaller = replace(problem, items=tuple(replace(item, values=_shrunk(item)) for item in items))
    assert set(answer.assignment) == set(solve(smaller, "exact").assignment)


def _shrunk(item: Item) -> SparseValues:
    """The same order of values in fewer bits."""
    assert isinstance(item.values, SparseValues)
    off = VALUE_MAX - 1_000
    credit = {b: k - off for b, k in item.values.credit.items()}
    return replace(item.values, credit=credit, footprint=item.values.footprint - off)


@pytest.mark.parametrize("solver", ["dp", "exact", "auto", "bfd", "greedy"])
def test_nothing_to_place_and_nowhere_to_go(solver: str) -> None:
    one = Item("i", 5, {})
    for problem in (
        Problem((), ()),
        Problem((Knapsack("a", 0),), ()),
        Problem((), (one,)),
        Problem((Knapsack("a", 4),), (replace(one, values={"a": Triple(1, 1, 1)}),)),
    ):
        answer = solve(problem, solver)
        assert (answer.status, answer.assignment) == ("optimal", {})
        assert answer.objective == answer.bound == Triple(0, 0, 0)


def test_slots_of_a_full_knapsack_hold_for_items_without_weight() -> None:
    items = [Item(f"light{n:02}", 0, {"full": Triple(5, 0, 1)}) for n in range(4)]
    items += [Item(f"heavy{n:02}", 10, {"roomy": Triple(0, 0, 10)}) for n in range(14)]
    problem = Problem((Knapsack("full", 0, 2), Knapsack("roomy", 100, None)), tuple(items))
    for solver in ("dp", "auto", "exact"):
        answer = solve(problem, solver)
        assert verify(problem, answer.assignment) == answer.objective == Triple(10, 0, 102), solver
