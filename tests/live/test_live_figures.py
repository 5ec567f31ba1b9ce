"""Medians with intervals that cover what they promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.figures import coverage, fraction, median


@pytest.mark.parametrize(
    ("count", "rank", "expected"), [(5, 1, 1 - 2 / 32), (6, 1, 1 - 2 / 64), (8, 2, 1 - 18 / 256)]
)
def test_coverage_is_that_of_the_binomial(count: int, rank: int, expected: float) -> None:
    assert coverage(count, rank) == pytest.approx(expected)


def test_five_values_give_their_range() -> None:
    found = median([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (found.value, found.low, found.high, found.count) == (3.0, 1.0, 5.0, 5)
    assert found.coverage == pytest.approx(0.9375)


def test_many_values_leave_the_outermost_out() -> None:
    found = median([float(number) for number in range(20)])
    assert (found.low, found.high) == (5.0, 14.0)  # 10th-largest intervals of the sign test for n = 20
    assert found.coverage >= 0.9


def test_a_single_value_is_shown_without_an_interval() -> None:
    assert f"{median([2.5]):.1f}" == "2.5"
    assert median([2.5]).coverage == 0.0
    assert f"{median([1.0, 2.0]):.1f}" == "1.5 [1.0, 2.0]"


def test_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a value"):
        median([])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_the_interval_holds_the_median(values: list[float]) -> None:
    found = median(values)
    assert found.low <= found.value <= found.high
    assert len(values) < 5 or found.coverage >= 0.9


def test_fractions_pair_what_was_measured_together() -> None:
    assert fraction([1.0, 6.0], [2.0, 3.0]) == [0.5, 2.0]
    with pytest.raises(ValueError, match="argument"):
        fraction([1.0], [1.0, 2.0])
