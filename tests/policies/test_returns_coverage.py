"""How wide an interval has to be to hold what it claims, with numbers worked out by hand: twenty calls are the prior."""

import pytest

from tao.policies.returns.coverage import IntervalCoverage


def test_with_nothing_scored_a_level_is_what_it_claims_but_for_the_call_to_come() -> None:
    """0.5 of 21 calls are 10.5 of 20."""
    coverage = IntervalCoverage()
    assert coverage.widened(0.0) == 0.0
    assert coverage.widened(0.5) == pytest.approx(10.5 / 20)


def test_what_so_few_calls_cannot_promise_takes_the_widest_interval() -> None:
    """0.99 of 21 calls are more than 20: none of the known levels has held so many."""
    coverage = IntervalCoverage()
    assert coverage.widened(0.99) == 1.0
    for _ in range(80):
        coverage.add(0.5)  # whatever half promises has held them all
    assert coverage.widened(0.99) == pytest.approx(0.9995)  # 99.99 of 100: all but 0.01 of the prior's 20
    assert coverage.widened(0.999) == 1.0


def test_calls_that_held_at_any_level_need_no_interval() -> None:
    coverage = IntervalCoverage()
    for _ in range(80):
        coverage.add(0.0)
    assert coverage.widened(0.79) == 0.0  # 79.79 of 101 are fewer than 80
    assert coverage.widened(0.81) > 0.0
