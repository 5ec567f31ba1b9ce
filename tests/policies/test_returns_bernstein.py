"""The empirical-Bernstein predictor, against values worked out by hand: ln(3 / 0.05) = 4.0943."""

from math import inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.core.events import ToolCall
from tao.policies.returns import Absence, EmpiricalBernstein, PointForecast

BASH, READ = ToolCall("bash"), ToolCall("read")


def learned(*durations: float, tool: ToolCall = BASH) -> EmpiricalBernstein:
    predictor = EmpiricalBernstein()
    for seconds in durations:
        predictor.learn(Absence((tool,)), seconds)
    return predictor


def test_nothing_known() -> None:
    assert EmpiricalBernstein().predict(Absence((BASH,))) == PointForecast(5.0, "default")
    assert EmpiricalBernstein(default_seconds=8.0).predict(Absence(())) == PointForecast(8.0, "default")


def test_one_call_has_no_spread() -> None:
    assert learned(7.0).predict(Absence((BASH,))) == PointForecast(7.0, "history of bash")


def test_two_calls_say_little_and_the_margin_is_capped_at_the_mean() -> None:
    """mean 3, variance 2, range 2: sqrt(2*2*2.047) + 3*2*2.047 = 15.1, capped at 3."""
    assert learned(2.0, 4.0).predict(Absence((BASH,))).quantile(0.5) == pytest.approx(6.0)


def test_many_calls_say_much() -> None:
    """mean 10, variance 0.01005, range 0.2, n 200: sqrt(2*0.01005*0.02047) + 3*0.2*0.02047 = 0.02029 + 0.01228."""
    assert learned(*[9.9, 10.1] * 100).predict(Absence((BASH,))).quantile(0.5) == pytest.approx(
        10.03257, abs=1e-5
    )


def test_the_risk_is_a_parameter() -> None:
    """ln(3 / 0.5) = 1.7918: sqrt(2*0.01005*0.008959) + 3*0.2*0.008959 = 0.01342 + 0.00538."""
    predictor = EmpiricalBernstein(risk=0.5)
    for seconds in [9.9, 10.1] * 100:
        predictor.learn(Absence((BASH,)), seconds)
    assert predictor.predict(Absence((BASH,))).quantile(0.5) == pytest.approx(10.01880, abs=1e-5)


def test_an_unknown_tool_takes_what_all_tools_take() -> None:
    assert learned(4.0).predict(Absence((READ,))) == PointForecast(4.0, "history of all tools")


def test_the_longest_of_parallel_tools_counts() -> None:
    predictor = learned(4.0)
    predictor.learn(Absence((READ,)), 1.0)
    assert predictor.predict(Absence((READ, BASH))) == PointForecast(4.0, "history of bash")


def test_parallel_tools_teach_only_the_global_history() -> None:
    predictor = EmpiricalBernstein()
    predictor.learn(Absence((BASH, READ)), 9.0)
    assert predictor.predict(Absence((BASH,))) == PointForecast(9.0, "history of all tools")


def test_humans_have_a_history_of_their_own() -> None:
    predictor = learned(1.0)
    predictor.learn(Absence(()), 300.0)
    assert predictor.predict(Absence(())).quantile(0.5) == 300.0
    assert predictor.predict(Absence((READ,))).quantile(0.5) == 1.0


@pytest.mark.parametrize(
    ("sleep", "timeout", "expected"), [(30.0, None, 30.0), (30.0, 10.0, 10.0), (0.0, None, 0.0)]
)
def test_a_literal_sleep_beats_history_and_its_timeout_bounds_it(
    sleep: float, timeout: float | None, expected: float
) -> None:
    call = ToolCall("bash", "sleep", sleep, timeout)
    assert learned(4.0).predict(Absence((call,))) == PointForecast(expected, "sleep")


def test_the_table_is_bounded_and_forgets_what_was_learned_of_longest_ago() -> None:
    predictor = EmpiricalBernstein(tools_max=2)
    for name, seconds in (("p", 1.0), ("q", 2.0), ("p", 1.0), ("r", 3.0)):
        predictor.learn(Absence((ToolCall(name),)), seconds)
    assert predictor.predict(Absence((ToolCall("p"),))).source == "history of p"
    assert predictor.predict(Absence((ToolCall("q"),))).source == "history of all tools"
    assert predictor.predict(Absence((ToolCall("r"),))).source == "history of r"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_the_prediction_is_conservative_and_at_most_twice_the_mean(durations: list[float]) -> None:
    predicted = learned(*durations).predict(Absence((BASH,))).quantile(0.5)
    mean = sum(durations) / len(durations)
    assert isfinite(predicted)
    rounding = 1e-9 * mean + 1e-12  # the second where a mean is smaller than any float has digits for
    assert mean - rounding <= predicted <= 2 * mean + rounding < inf
