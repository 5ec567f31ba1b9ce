"""The fit gives back the constants that made the times."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.inspection.regression import PrefillPoint, fit_prefill, step_ms


@given(
    fixed=st.floats(0.0, 100.0),
    linear=st.floats(1e-3, 10.0),
    square=st.floats(0.0, 1e-2),
    cached=st.sampled_from([0, 16]),
)
@settings(max_examples=60, deadline=None)
def test_exact_times_give_exact_constants(fixed: float, linear: float, square: float, cached: int) -> None:
    points = []
    for tokens in (64, 256, 1024, 4096):
        new = tokens - cached
        points.append(PrefillPoint(tokens, cached, fixed + linear * new + square * new * (cached + new / 2)))
    terms = fit_prefill(points)
    assert terms.error < 1e-6
    for point in points:
        new = point.tokens - point.cached_tokens
        told = terms.fixed_ms + terms.ms_per_token * new
        told += terms.ms_per_token_squared * new * (point.cached_tokens + new / 2)
        assert told == pytest.approx(point.ms, rel=1e-6)


def test_no_term_is_ever_negative() -> None:
    """Times that fall behind a straight line would want a negative square."""
    terms = fit_prefill([PrefillPoint(n, 0, 10.0 * n**0.8) for n in (64, 256, 1024, 4096)])
    assert terms.fixed_ms >= 0
    assert terms.ms_per_token > 0
    assert terms.ms_per_token_squared >= 0


def test_two_points_are_enough() -> None:
    terms = fit_prefill([PrefillPoint(100, 0, 110.0), PrefillPoint(200, 0, 210.0)])
    assert terms.fixed_ms + 150 * terms.ms_per_token + terms.ms_per_token_squared * 150 * 75 == pytest.approx(
        160, 0.05
    )


def test_a_step_is_the_time_between_tokens_while_all_decode() -> None:
    times = [tuple(start + 0.05 * n for n in range(20)) for start in (0.0, 0.1, 0.2)]
    assert all(later > earlier for earlier, later in pairwise(times[0]))
    assert step_ms([(each, 20) for each in times]) == pytest.approx(0.05)
    assert step_ms([(tuple(0.1 * n for n in range(10)), 19)]) == pytest.approx(0.05), "two tokens a piece"


def test_streams_that_never_ran_together_tell_nothing() -> None:
    first, second = tuple(0.1 * n for n in range(10)), tuple(5 + 0.1 * n for n in range(10))
    assert step_ms([(first, 10), (second, 10)]) is None
    assert step_ms([((1.0,), 1)]) is None
