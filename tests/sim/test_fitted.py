"""Drawn sessions resemble those that the distributions were fitted to, and are none of them."""

from statistics import fmean

import pytest
from sim_kit import session, tool, turn

from tao.sim.fitted import FittedSessions
from tao.traces import TraceSession, read_trace, sample_path


@pytest.fixture(scope="module")
def sample() -> list[TraceSession]:
    return list(read_trace(sample_path()))


def test_drawn_sessions_have_the_shape_of_the_recorded(sample: list[TraceSession]) -> None:
    drawn = FittedSessions(sample).draw(400, 1)

    def shape(sessions: list[TraceSession]) -> tuple[float, float, float, float]:
        turns = [t for s in sessions for t in s.turns]
        return (
            fmean(len(s.turns) for s in sessions),
            fmean(s.turns[0].prompt_tokens for s in sessions),
            fmean(t.output_tokens for t in turns),
            fmean(t.tool_seconds for t in turns if t.tool is not None),
        )

    for ours, theirs in zip(shape(drawn), shape(sample), strict=True):
        assert ours == pytest.approx(theirs, rel=0.25)
    assert len({s.session_id for s in drawn}) == 400
    assert {s.source for s in drawn} == {s.source for s in sample}


def test_prompts_extend_one_another_but_for_compaction(sample: list[TraceSession]) -> None:
    for drawn in FittedSessions(sample).draw(100, 2):
        for index, one in enumerate(drawn.turns[:-1]):
            following = drawn.turns[index + 1]
            if not following.prefix_reset:
                assert following.prompt_tokens >= one.prompt_tokens + one.output_tokens


def test_a_draw_repeats_by_seed(sample: list[TraceSession]) -> None:
    fitted = FittedSessions(sample)
    assert fitted.draw(20, 5) == fitted.draw(20, 5) != fitted.draw(20, 6)


def test_compaction_is_drawn_too() -> None:
    recorded = session("a", turn(1_000, 10, tool(2.0)), turn(300, 10, tool(2.0)), turn(400, 5))
    drawn = FittedSessions([recorded]).draw(50, 0)
    resets = [t for s in drawn for t in s.turns if t.prefix_reset]
    assert resets
    assert all(t.prompt_tokens <= 1_000 for t in resets)
    assert all(len(s.turns) == 3 for s in drawn)
    assert all(s.turns[-1].tool is None for s in drawn)


def test_nothing_to_fit_to() -> None:
    with pytest.raises(ValueError, match="no session"):
        FittedSessions([])
