"""A problem is checked once, when it is built, and says which item is wrong and why."""

from typing import Any

import pytest

from tao.planning import (
    InfeasibleError,
    Item,
    Knapsack,
    Problem,
    ProblemError,
    SparseValues,
    Triple,
    UnknownSolverError,
    solve,
    verify,
)
from tao.planning.problem import ITEMS_MAX, KNAPSACKS_MAX, VALUE_MAX

ANY: Any = None
ONE = Triple(1, 1, 1)


def item(**changes: Any) -> Item:
    fields: dict[str, Any] = {"id": "i", "weight_tokens": 1, "values": {"a": ONE}}
    return Item(**fields | changes)


@pytest.mark.parametrize(
    ("knapsack", "message"),
    [
        (Knapsack("a", -1), "knapsack 'a': capacity_tokens must not be negative, but is -1"),
        (Knapsack("a", ANY), "capacity_tokens must be an integer, not None"),
        (Knapsack("a", True), "must be an integer, not True"),
        (Knapsack("a", VALUE_MAX + 1), "above the limit"),
        (Knapsack("a", 1, slots=-2), "slots must not be negative"),
        (Knapsack("", 1), "knapsack id '' must be a non-empty string"),
    ],
)
def test_bad_knapsacks(knapsack: Knapsack, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem((knapsack,), ())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (item(weight_tokens=-5), "item 'i': weight_tokens must not be negative, but is -5"),
        (item(weight_tokens=1.5), "weight_tokens must be an integer, not 1.5"),
        (item(weight_tokens=VALUE_MAX + 1), "above the limit"),
        (item(waited_seconds=-1.0), "waited_seconds must be a finite number of seconds >= 0"),
        (item(waited_seconds=float("nan")), "waited_seconds must be a finite"),
        (item(waited_seconds="soon"), "waited_seconds must be a finite"),
        (item(home=3), "home must be a knapsack id or None"),
        (item(values={"z": ONE}), "item 'i': 'z' is not a knapsack of this problem"),
        (item(values={"a": (1, 2, 3)}), "must be a Triple"),
        (item(values={"a": Triple(1, -1, 1)}), "readiness in 'a' must not be negative"),
        (item(values=SparseValues(("a",), {}, 0, -1)), "footprint must not be negative"),
        (item(values=SparseValues(("z",), {}, 0, 1)), "'z' is not a knapsack"),
        (item(values=SparseValues(("a", "a"), {}, 0, 1)), "'a' is there twice"),
        (item(values=SparseValues(("a",), {"b": 1}, 0, 1)), "has credit in 'b', which is not eligible"),
        (item(values=SparseValues(("a",), {"z": 1}, 0, 1)), "'z' is not a knapsack"),
        (item(values=SparseValues(("a",), {"a": -1}, 0, 1)), "credit in 'a' must not be negative"),
    ],
)
def test_bad_items(wrong: Item, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem((Knapsack("a", 10), Knapsack("b", 10)), (wrong,))


def test_ids_are_unique_and_sizes_bounded() -> None:
    with pytest.raises(ProblemError, match="knapsack id 'a' is there twice"):
        Problem((Knapsack("a", 1), Knapsack("a", 2)), ())
    with pytest.raises(ProblemError, match="item id 'i' is there twice"):
        Problem((Knapsack("a", 1),), (item(), item()))
    with pytest.raises(ProblemError, match="items are more than the limit"):
        Problem((), tuple(item(id=str(i), values={}) for i in range(ITEMS_MAX + 1)))
    with pytest.raises(ProblemError, match="knapsacks are more than the limit"):
        Problem(tuple(Knapsack(str(b), 1) for b in range(KNAPSACKS_MAX + 1)), ())
    with pytest.raises(ProblemError, match="pairs"):
        Problem(
            tuple(Knapsack(str(b), 1) for b in range(KNAPSACKS_MAX)),
            tuple(item(id=str(i), values={}) for i in range(5_000)),
        )
    with pytest.raises(ProblemError, match="wait_seconds_max"):
        Problem((), (), wait_seconds_max=-1.0)


def test_sparse_values_are_a_mapping_of_triples() -> None:
    values = SparseValues(("a", "b"), {"a": 7}, 1, 9)
    assert dict(values) == {"a": Triple(7, 1, 9), "b": Triple(0, 1, 9)}
    assert len(values) == 2
    assert "c" not in values
    with pytest.raises(KeyError):
        values["c"]


def test_verify_names_the_constraint_that_is_broken() -> None:
    problem = Problem(
        (Knapsack("a", 10, slots=1), Knapsack("b", 5)),
        (item(id="i", weight_tokens=4), item(id="j", weight_tokens=6, values={"a": ONE, "b": ONE})),
    )
    assert verify(problem, {"i": "a"}) == ONE
    for assignment, message in (
        ({"x": "a"}, "item 'x' is not in the problem"),
        ({"i": "b"}, "item 'i' is not eligible for knapsack 'b'"),
        ({"j": "b"}, "knapsack 'b' holds 6 tokens, more than its capacity of 5"),
        ({"i": "a", "j": "a"}, "knapsack 'a' holds 2 items, more than its 1 slots"),
    ):
        with pytest.raises(InfeasibleError, match=message):
            verify(problem, assignment)


def test_an_unknown_solver_is_named_with_those_that_exist() -> None:
    with pytest.raises(
        UnknownSolverError, match="no solver is named 'best'; there are auto, bfd, dp, exact, greedy"
    ):
        solve(Problem((), ()), "best")
