"""Items that waited too long come first, oldest first, at a price that is reported; none waits for ever."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tao.planning import Item, Knapsack, Problem, SparseValues, Triple, hold_back, solve, verify
from tao.planning.ageing import OLDEST_IN_ORDER

JOINT = ("dp", "exact", "auto")
ALL = (*JOINT, "bfd", "greedy")


def waiting(name: str, weight: int, waited_seconds: float, credit: int = 0) -> Item:
    return Item(name, weight, {"a": Triple(credit, 0, weight)}, waited_seconds=waited_seconds)


@pytest.mark.parametrize("solver", ALL)
def test_the_oldest_is_placed_before_any_value(solver: str) -> None:
    items = (waiting("old", 60, 400.0), waiting("rich", 70, 10.0, credit=70), waiting("older", 50, 500.0))
    answer = solve(Problem((Knapsack("a", 100),), items, wait_seconds_max=300.0), solver)
    assert answer.assignment == {"older": "a"}
    assert answer.ageing is not None
    assert answer.ageing.aged == ("older", "old")
    assert answer.ageing.placed == ("older",)
    if solver in JOINT:
        assert answer.status == "optimal"
        assert answer.ageing.price == Triple(70, 0, 20)


def test_without_a_bound_or_aged_items_nothing_changes() -> None:
    items = (waiting("old", 60, 400.0), waiting("rich", 70, 10.0, credit=70))
    problem = Problem((Knapsack("a", 100),), items)
    assert solve(problem).assignment == {"rich": "a"}
    assert solve(problem).ageing is None
    assert solve(replace(problem, wait_seconds_max=1_000.0)).ageing is None


def test_beyond_the_ranked_ones_as_many_as_possible_are_placed() -> None:
    ranked = [waiting(f"r{n}", 1, 1_000.0 - n) for n in range(OLDEST_IN_ORDER)]
    others = [waiting("heavy", 30, 500.0), waiting("light", 10, 400.0), waiting("lighter", 9, 350.0)]
    problem = Problem((Knapsack("a", 38),), (*ranked, *others), wait_seconds_max=300.0)
    answer = solve(problem, "exact")
    assert set(answer.assignment) == {item.id for item in (*ranked, others[1], others[2])}


def test_the_search_proves_priority_before_credit() -> None:
    knapsacks = tuple(Knapsack(f"k{b}", 100 + b) for b in range(4))
    items = tuple(
        Item(
            f"i{n:02}",
            20 + (7 * n) % 31,
            SparseValues(tuple(k.id for k in knapsacks), {f"k{n % 4}": n % 13}, n % 2, 20 + (7 * n) % 31),
            waited_seconds=float(n * 20),
        )
        for n in range(30)
    )
    problem = Problem(knapsacks, items, wait_seconds_max=480.0)
    answer = solve(problem, "exact")
    assert answer.status == "optimal"
    assert answer.ageing is not None
    assert answer.ageing.aged == ("i29", "i28", "i27", "i26", "i25", "i24")
    assert answer.ageing.placed == answer.ageing.aged
    assert answer.ageing.price >= (0, 0, 0)
    assert verify(problem, answer.assignment) == answer.objective
    assert solve(replace(problem, wait_seconds_max=None), "exact").objective == tuple(
        a + b for a, b in zip(answer.objective, answer.ageing.price, strict=True)
    )


def _rounds_until_large_is_placed(
    plan: Callable[[Problem], Problem], bound_seconds: float | None
) -> int | None:
    """One knapsack of 100 under endless small items of 10 tokens and 5 s, and one item that needs 80 of it."""
    running: list[tuple[int, int]] = []  # (round in which it ends, weight)
    pool = [waiting("large", 80, 0.0)]
    for round_ in range(60):
        running = [(end, weight) for end, weight in running if end > round_]
        pool = [replace(item, waited_seconds=item.waited_seconds + 1.0) for item in pool]
        pool += [waiting(f"small{round_}.{n}", 10, 0.0, credit=5) for n in range(4)]
        room = 100 - sum(weight for _, weight in running)
        answer = solve(plan(Problem((Knapsack("a", room),), tuple(pool), bound_seconds)))
        if "large" in answer.assignment:
            return round_
        running += [(round_ + 5, item.weight_tokens) for item in pool if item.id in answer.assignment]
        pool = [item for item in pool if item.id == "large"]
    return None


def test_a_large_item_starves_without_the_guard_and_never_with_it() -> None:
    def as_it_is(problem: Problem) -> Problem:
        return problem

    assert _rounds_until_large_is_placed(as_it_is, None) is None
    assert (
        _rounds_until_large_is_placed(as_it_is, 20.0) is None
    )  # freed in small pieces: priority alone is not enough
    placed = _rounds_until_large_is_placed(hold_back, 20.0)
    assert placed is not None
    assert placed <= 20 + 5  # the bound, and the longest run of what is inside


def test_hold_back_keeps_the_roomiest_knapsack_for_the_oldest() -> None:
    knapsacks = (Knapsack("a", 50), Knapsack("b", 60), Knapsack("c", 90, slots=0))
    names = ("a", "b", "c")
    small = Item("small", 10, SparseValues(names, {"b": 4}, 0, 10))
    dense = Item("dense", 10, {b: Triple(1, 0, 10) for b in names}, waited_seconds=310.0)
    large = Item("large", 80, SparseValues(names, {}, 0, 80), waited_seconds=320.0)
    problem = Problem(knapsacks, (small, dense, large), wait_seconds_max=300.0)
    held = hold_back(problem)
    assert [list(item.values) for item in held.items] == [["a", "b"], ["a", "b"], ["a", "b", "c"]]
    assert hold_back(replace(problem, items=(small, dense))).items == (small, dense)  # the oldest fits
    assert hold_back(replace(problem, items=(small,))).items == (small,)
    assert hold_back(replace(problem, wait_seconds_max=None)).items == problem.items
