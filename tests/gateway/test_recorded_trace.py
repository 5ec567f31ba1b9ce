"""Agents replayed through the gateway, recorded there as a trace: what comes out says what went in."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_kit import emulated, fronted

from tao.cli import main
from tao.record.livetrace import TraceRecorder
from tao.replay import ReplayConfig, ToldOfTools, replay
from tao.traces import TraceSession, TraceTool, TraceTurn, read_trace
from tao.traces.writers.native import NativeFile

SPEED = 4.0
SYSTEM_TOKENS = 600


def tool(name: str, seconds: float, head: str | None = None) -> TraceTool:
    return TraceTool(name=name, duration_seconds=seconds, command_head=head)


def agent(number: int, parent: str | None = None) -> TraceSession:
    """Six turns, tools of several kinds, a wait for a human, a compaction."""
    tools = [
        tool("Bash", 2.0, "make"),
        tool("Read", 1.5),
        None,
        tool("Bash", 2.5, "pytest"),
        tool("Task", 1.0),
    ]
    prompts = [2000, 2600, 3100, 3900, 1500, 2300]
    turns = tuple(
        TraceTurn(
            prompt_tokens=tokens + 37 * number,
            output_tokens=30 + index,
            tool=tools[index] if index < len(tools) else None,
            user_gap_seconds=3.0 if index == 2 else None,
        )
        for index, tokens in enumerate(prompts)
    )
    return TraceSession(
        session_id=f"agent-{number}",
        source="agents",
        system_tokens=SYSTEM_TOKENS,
        turns=turns,
        parent=parent,
        parent_turn=4 if parent is not None else None,
    )


def child(parent: str) -> TraceSession:
    turns = (
        TraceTurn(prompt_tokens=1800, output_tokens=20, tool=tool("Grep", 1.0)),
        TraceTurn(prompt_tokens=2100, output_tokens=20),
    )
    return TraceSession(session_id=f"{parent}-child", parent=parent, parent_turn=4, turns=turns)


async def recorded(path: Path, sessions: list[TraceSession]) -> list[TraceSession]:
    """The sessions as the gateway recorded them, in the order of their starts."""
    file = NativeFile(path)
    recorder = TraceRecorder(file)
    async with (
        emulated(speed=SPEED) as replica,
        fronted(replica.url, speed=SPEED, recorder=recorder) as front,
    ):
        config = ReplayConfig(front.url, concurrency=4, speed=SPEED, told_of_tools=ToldOfTools.NAMES)
        measured = await replay(config, sessions)
        assert [turn.error for turn in measured] == [None] * sum(len(s.turns) for s in sessions)
    recorder.close()
    file.close()
    return sorted(read_trace(path), key=lambda session: session.start_offset_seconds)


async def test_a_replay_recorded_is_the_trace_that_was_replayed(tmp_path: Path) -> None:
    source = [*map(agent, range(4)), child("agent-2")]
    found = await recorded(tmp_path / "live.jsonl.gz", source)
    assert sorted(len(s.turns) for s in found) == sorted(len(s.turns) for s in source)
    large = [session for session in found if len(session.turns) == 6]
    (small,) = [session for session in found if len(session.turns) == 2]
    for index, turn_of_source in enumerate(source[0].turns):
        turns = [session.turns[index] for session in large]
        for turn in turns:
            # Lengths of texts are learned as the replay goes; outputs are exact.
            assert turn.output_tokens == turn_of_source.output_tokens
            assert turn.prompt_tokens == pytest.approx(turn_of_source.prompt_tokens, rel=0.15)
            assert turn.cached_tokens is not None
        assert {turn.tool.name if turn.tool else None for turn in turns} == {
            turn_of_source.tool.name if turn_of_source.tool else None
        }
        assert {turn.tool.command_head if turn.tool else None for turn in turns} == {
            turn_of_source.tool.command_head if turn_of_source.tool else None
        }
        waits = [turn.tool_seconds + turn.human_seconds for turn in turns]
        expected = turn_of_source.tool_seconds + turn_of_source.human_seconds
        # A busy machine makes waits longer, never shorter: half a second here is two of the model.
        assert all(wait > expected - 0.5 for wait in waits), (waits, expected)
        assert min(waits) < expected + 2.0, (waits, expected)
    assert all(session.turns[4].prefix_reset for session in large)
    assert not any(turn.prefix_reset for session in large for turn in session.turns[:4])
    parent = next(session for session in large if session.session_id == small.parent)
    assert (small.parent, small.parent_turn) == (parent.session_id, 4)
    sources = {session.source for session in large}
    assert len(sources) == 1
    assert large[0].system_tokens == pytest.approx(SYSTEM_TOKENS, rel=0.2)
    assert "agent-" not in " ".join(session.session_id for session in found)


async def test_what_was_recorded_can_be_simulated_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    await recorded(path, [agent(0), agent(1)])
    asked = ["simulate", "--trace", str(path), "--policy", "tao", "--concurrency", "2", "--processes", "1"]
    ran = CliRunner().invoke(main, [*asked, "--kv-tokens", "20000", "--json", str(tmp_path / "out.json")])
    assert ran.exit_code == 0, ran.output
    async with emulated(speed=200.0) as replica:
        measured = await replay(ReplayConfig(replica.url, concurrency=2, speed=200.0), list(read_trace(path)))
        assert [turn.error for turn in measured] == [None] * 12
