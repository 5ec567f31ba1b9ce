"""Intervals and paired comparisons, against figures worked out by hand and by tables; and the colours of plots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.report.bounds import recovered_share
from tao.report.figures import colours_of
from tao.report.statistics import Verdict, compare, estimate


def test_an_interval_by_students_t() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert found.mean == 3.0
    assert found.half_width == pytest.approx(2.776 * (2.5 / 5) ** 0.5)
    assert found.low == pytest.approx(3 - 1.963, abs=1e-3)
    assert found.high == pytest.approx(3 + 1.963, abs=1e-3)


def test_no_value_and_a_single_one() -> None:
    assert estimate([]) is None
    single = estimate([7.0])
    assert single is not None
    assert (single.mean, single.half_width, single.low) == (7.0, None, 7.0)


def test_many_values_use_the_normal_one() -> None:
    found = estimate([float(n % 2) for n in range(100)])
    assert found is not None
    assert found.half_width == pytest.approx(1.960 * (0.25 * 100 / 99 / 100) ** 0.5)


def verdict(ours: list[float], theirs: list[float], *, less_is_better: bool = True) -> Verdict:
    found = compare(ours, theirs, less_is_better=less_is_better)
    assert found is not None
    return found.verdict


def test_comparisons_are_paired() -> None:
    theirs = [100.0, 200.0, 300.0]
    ours = [90.0, 181.0, 269.0]  # a tenth less each time, however far apart the seeds are
    assert verdict(ours, theirs) is Verdict.WIN
    assert verdict(ours, theirs, less_is_better=False) is Verdict.LOSS
    assert verdict(theirs, ours) is Verdict.LOSS


def test_what_goes_either_way_is_a_tie_and_so_is_a_single_seed() -> None:
    assert verdict([90.0, 210.0], [100.0, 200.0]) is Verdict.TIE
    assert verdict([10.0], [100.0]) is Verdict.TIE
    assert compare([1.0], [0.0], less_is_better=True) is None


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8))
def test_nothing_wins_against_itself(values: list[float]) -> None:
    assert verdict(values, values) is Verdict.TIE


def test_the_share_of_the_way_to_the_floor() -> None:
    assert recovered_share(60.0, 100.0, 20.0) == 0.5
    assert recovered_share(20.0, 100.0, 20.0) == 1.0
    assert recovered_share(140.0, 100.0, 20.0) == -0.5
    assert recovered_share(60.0, 20.0, 20.0) is None
    assert recovered_share(60.0, None, 20.0) is None


def test_tao_has_one_colour_in_all_reports_and_no_other_policy_has_it() -> None:
    few, many = colours_of(["tao", "aimd"]), colours_of([f"p{n}" for n in range(15)] + ["tao"])
    assert few["tao"] == many["tao"]
    assert [policy for policy, colour in many.items() if colour == many["tao"]] == ["tao"]
    assert len(set(many.values())) == 12
