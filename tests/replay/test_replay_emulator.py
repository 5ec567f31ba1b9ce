"""The load client and the emulator, both as a user starts them: the engine finds what was said before."""

import pytest

from tao.cli.children import running
from tao.record.summary import summarise
from tao.replay import ReplayConfig, replay
from tao.traces import read_trace, sample_path, select_sessions


@pytest.mark.slow
async def test_recorded_lengths_arrive_and_hit_the_cache() -> None:
    chosen = select_sessions(read_trace(sample_path()), count_max=3, prompt_tokens_max=12_000)
    async with running("replica", ["emulate", "--port", "0", "--speed", "100"]) as replica:
        config = ReplayConfig(replica.url, concurrency=3, speed=100.0)
        measured = await replay(config, chosen.sessions)
    expected = {(s.session_id, i): t for s in chosen.sessions for i, t in enumerate(s.turns)}
    assert [m.error for m in measured] == [None] * len(expected)
    assert all(m.output_tokens == expected[m.session_id, m.turn_index].output_tokens for m in measured)
    off = sorted(
        abs((m.prompt_tokens or 0) / expected[m.session_id, m.turn_index].prompt_tokens - 1) for m in measured
    )
    assert off[len(off) // 2] < 0.01
    summary = summarise(measured, workers=3)
    # Memory is ample: all that a prompt shares with the one before it is found, to the block.
    assert summary.prefix_hit_rate is not None
    assert summary.prefix_hit_rate > 0.85
    assert summary.decode_tokens_per_second is not None
