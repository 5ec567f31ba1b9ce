"""The fold from turns to a run's figures, against small runs worked out by hand."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.record.measure import TurnMeasurement
from tao.record.summary import Distribution, busy_window, summarise


def turn(
    session: str, index: int, arrived: float, first: float | None, finished: float, **more: object
) -> TurnMeasurement:
    return TurnMeasurement(
        session_id=session,
        turn_index=index,
        arrived_at=arrived,
        first_token_at=first,
        finished_at=finished,
        **more,  # type: ignore[arg-type]
    )


def test_two_sessions_by_hand() -> None:
    run = [
        turn("a", 0, 0.0, 1.0, 3.0, prompt_tokens=100, cached_tokens=0, output_tokens=20, hold_seconds=0.0),
        turn(
            "a",
            1,
            5.0,
            5.5,
            9.5,
            prompt_tokens=300,
            cached_tokens=120,
            output_tokens=40,
            hold_seconds=0.25,
            tool_ended_at=4.75,
        ),
        turn("b", 0, 0.0, 2.0, 4.0, prompt_tokens=100, cached_tokens=80, output_tokens=10),
    ]
    summary = summarise(run, workers=2)
    assert (summary.sessions, summary.turns, summary.sessions_failed) == (2, 3, 0)
    assert summary.latency_seconds == Distribution.of([9.5, 4.0])
    assert summary.ttft_seconds.mean == pytest.approx((1.0 + 0.5 + 2.0) / 3)
    assert summary.tool_end_to_first_token_seconds == Distribution.of([0.75])
    assert summary.hold_seconds.max == 0.25
    assert summary.hold_seconds.count == 2
    assert summary.prefix_hit_rate == pytest.approx(200 / 500)
    assert summary.makespan_seconds == 9.5
    assert summary.decode_tokens_per_second_overall == pytest.approx(70 / 9.5)
    # Both workers are busy from 0 to the end of b at 4: all of a's first turn and all of b.
    assert summary.decode_tokens_per_second == pytest.approx(30 / 4.0)


def test_a_turn_across_the_edge_of_the_window_counts_in_part() -> None:
    run = [
        turn("a", 0, 0.0, 1.0, 9.0, output_tokens=80),
        turn("b", 0, 0.0, 1.0, 5.0, output_tokens=40),
    ]
    assert summarise(run, workers=2).decode_tokens_per_second == pytest.approx((40 + 40) / 5.0)


def test_failed_sessions_are_counted_and_left_out_of_latency() -> None:
    run = [
        turn("a", 0, 0.0, 1.0, 2.0, output_tokens=5),
        turn("b", 0, 0.0, None, 60.0, error="timeout"),
        turn("c", 0, 0.0, 1.0, 3.0, error="stream", retried=("http_429", "http_429")),
    ]
    summary = summarise(run, workers=3)
    assert summary.sessions_failed == 2
    assert summary.turns_failed == 2
    assert summary.retries == {"http_429": 2}
    assert summary.errors == {"stream": 1, "timeout": 1}
    assert summary.latency_seconds == Distribution.of([2.0])


def test_children_hold_no_worker() -> None:
    run = [
        turn("a", 0, 0.0, 1.0, 10.0, output_tokens=9),
        turn("kid", 0, 2.0, 3.0, 4.0, output_tokens=3, parent_session_id="a"),
        turn("b", 0, 0.0, 1.0, 10.0, output_tokens=9),
    ]
    assert summarise(run, workers=2).decode_tokens_per_second == pytest.approx(21 / 10.0)


def test_an_empty_run_has_no_figures_but_is_no_error() -> None:
    summary = summarise([], workers=4)
    assert summary.sessions == 0
    assert summary.latency_seconds.mean is None
    assert summary.decode_tokens_per_second is None
    assert summary.prefix_hit_rate is None
    assert summary.to_json_dict()["latency_seconds"] == {
        "count": 0,
        "mean": None,
        "p50": None,
        "p90": None,
        "p99": None,
        "max": None,
    }


def test_the_window_ends_when_the_first_worker_runs_out_of_sessions() -> None:
    # Two workers, three sessions: worker 1 runs (0, 4) then (4, 9), worker 2 runs (0, 6) and then idles.
    assert busy_window([(0, 4), (0, 6), (4, 9)], 2) == (0, 6)
    assert busy_window([(0, 4)], 8) == (0, 4)
    assert busy_window([], 8) is None
    assert busy_window([(0, 1), (5, 6)], 2) is None


def test_percentiles_interpolate() -> None:
    distribution = Distribution.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (distribution.p50, distribution.max) == (3.0, 5.0)
    assert distribution.p90 == pytest.approx(4.6)


@pytest.mark.parametrize(
    ("arrived", "first", "finished"), [(1.0, 0.5, 2.0), (1.0, 3.0, 2.0), (3.0, None, 2.0), (math.nan, 1, 2)]
)
def test_times_that_run_backwards_are_refused(arrived: float, first: float | None, finished: float) -> None:
    with pytest.raises(ValueError, match="times must not decrease"):
        turn("a", 0, arrived, first, finished)


def test_workers_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        summarise([], workers=0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_percentiles_are_ordered_and_within_the_values(values: list[float]) -> None:
    d = Distribution.of(values)
    assert d.p50 is not None
    assert d.p90 is not None
    assert d.p99 is not None
    assert min(values) <= d.p50 <= d.p90 <= d.p99 <= max(values)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.floats(0, 100), st.floats(0, 10), st.floats(0, 10), st.integers(0, 500)
        ),
        max_size=40,
    ),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_the_order_of_turns_does_not_matter_and_no_token_counts_twice(
    rows: list[tuple[int, float, float, float, int]], workers: int, rng: random.Random
) -> None:
    run = [
        turn(f"s{s}", i, at, at + wait, at + wait + length, output_tokens=tokens)
        for i, (s, at, wait, length, tokens) in enumerate(rows)
    ]
    summary = summarise(run, workers=workers)
    shuffled = list(run)
    rng.shuffle(shuffled)
    assert summarise(shuffled, workers=workers) == summary
    spans = [(min(m.arrived_at for m in own), max(m.finished_at for m in own)) for own in _by_session(run)]
    window = busy_window(spans, workers)
    assert (window is None or not run) == (summary.decode_tokens_per_second is None)
    if window is not None and summary.decode_tokens_per_second is not None:
        counted = summary.decode_tokens_per_second * (window[1] - window[0])
        assert counted <= summary.output_tokens * (1 + 1e-9)


def _by_session(run: list[TurnMeasurement]) -> list[list[TurnMeasurement]]:
    return [[m for m in run if m.session_id == name] for name in sorted({m.session_id for m in run})]
