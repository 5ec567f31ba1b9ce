"""Recorded sessions made small: one factor for tokens, one for tools, and the shape stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.workload import Scale, ordered, recorded, run_seconds, scaled, totals
from tao.traces import TraceSession, TraceTool, TraceTurn, read_trace, sample_path


def session(
    name: str, prompts: list[int], *, output_tokens: int = 10, tool_seconds: float = 2.0
) -> TraceSession:
    tool = TraceTool(name="bash", duration_seconds=tool_seconds)
    turns = tuple(
        TraceTurn(
            prompt_tokens=tokens, output_tokens=output_tokens, tool=tool, cached_tokens=3, llm_seconds=9.0
        )
        for tokens in prompts
    )
    return TraceSession(session_id=name, source="somewhere", start_offset_seconds=77.0, turns=turns)


def test_the_longest_prompt_with_its_answer_becomes_the_peak() -> None:
    small = scaled([session("a", [90, 190]), session("b", [40, 90])], Scale(peak_tokens=100, turns_max=9))
    assert [turn.prompt_tokens for turn in small[0].turns] == [45, 95]
    assert [turn.prompt_tokens for turn in small[1].turns] == [20, 45]
    assert {turn.output_tokens for one in small for turn in one.turns} == {5}


def test_sessions_are_never_made_longer() -> None:
    (same,) = scaled([session("a", [20, 40])], Scale(peak_tokens=1_000, turns_max=9))
    assert [turn.prompt_tokens for turn in same.turns] == [20, 40]


def test_a_cut_comes_before_the_factor() -> None:
    (cut,) = scaled([session("a", [90, 190, 9_990])], Scale(peak_tokens=100, turns_max=2))
    assert [turn.prompt_tokens for turn in cut.turns] == [45, 95]


def test_tools_have_a_factor_of_their_own() -> None:
    (quick,) = scaled([session("a", [90, 190])], Scale(peak_tokens=100, turns_max=9, tool_factor=0.25))
    assert [turn.tool_seconds for turn in quick.turns] == [0.5, 0.5]
    assert quick.turns[0].tool is not None
    assert quick.turns[0].tool.name == "bash"


def test_latencies_of_the_recorded_provider_are_dropped() -> None:
    (small,) = scaled([session("a", [90])], Scale(peak_tokens=100, turns_max=9))
    assert (small.turns[0].cached_tokens, small.turns[0].llm_seconds) == (None, None)
    assert small.start_offset_seconds == 0.0


@given(
    prompts=st.lists(st.integers(1, 50_000), min_size=1, max_size=30),
    peak=st.integers(64, 8_000),
    turns_max=st.integers(1, 40),
)
def test_shape_is_kept_and_the_window_holds(prompts: list[int], peak: int, turns_max: int) -> None:
    whole = session("a", sorted(prompts))
    (small,) = scaled([whole], Scale(peak, turns_max))
    assert len(small.turns) == min(len(prompts), turns_max)
    sizes = [turn.prompt_tokens for turn in small.turns]
    assert sizes == sorted(sizes)
    assert min(sizes) >= 1
    assert totals([small]).peak_tokens <= peak + 2  # each count is rounded on its own


@pytest.mark.parametrize("values", [(10, 5), (100, 0)])
def test_a_scale_that_leaves_nothing_is_refused(values: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="nothing sensible"):
        Scale(*values)


def test_the_sample_has_sessions_of_the_source() -> None:
    sample = list(read_trace(sample_path()))
    chosen = recorded(sample, 14)
    assert len({one.session_id for one in chosen}) == 14
    with pytest.raises(ValueError, match="not 1000"):
        recorded(sample, 1_000)


def test_each_repeat_has_its_own_order_of_the_same_sessions() -> None:
    sessions = [session(f"s{number}", [64]) for number in range(8)]
    first, again, second = ordered(sessions, 0), ordered(sessions, 0), ordered(sessions, 1)
    assert first == again
    assert first != second
    assert sorted(one.session_id for one in second) == [one.session_id for one in sessions]


def test_new_tokens_are_what_an_endless_cache_has_to_compute() -> None:
    run = totals(
        [session("a", [100, 150, 150]), session("b", [100, 40])]
    )  # 40: a new prefix after a compaction
    assert run.prompt_tokens == 540
    assert run.new_prompt_tokens == 100 + 50 + 0 + 100 + 40
    assert (run.sessions, run.turns, run.output_tokens, run.tool_seconds) == (2, 5, 50, 10.0)


def test_the_estimate_falls_with_hits_but_not_below_new_tokens_nor_tools() -> None:
    run = totals([session("a", [6_000, 12_000])])
    lengths = [run_seconds(run, replicas=2, concurrency=1, hit_rate=rate) for rate in (0.0, 0.2, 1.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == run_seconds(run, replicas=2, concurrency=1, hit_rate=0.5) > 0
    waiting = totals([session("a", [64, 64], tool_seconds=500.0)])
    assert run_seconds(waiting, replicas=2, concurrency=1, hit_rate=1.0) == 1_000.0
