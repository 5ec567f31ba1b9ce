"""What is written is read again: exactly in our own format, as far as the format can say it in the others."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.traces import TraceSession, TraceTool, TraceTurn, read_trace, sample_path
from tao.traces.writers.aiperf import write_aiperf_mooncake
from tao.traces.writers.dynamo import write_dynamo_agentic


def turn(prompt: int, output: int = 10, tool: TraceTool | None = None, gap: float | None = None) -> TraceTurn:
    return TraceTurn(prompt_tokens=prompt, output_tokens=output, tool=tool, user_gap_seconds=gap)


def tool(name: str, seconds: float, **more: object) -> TraceTool:
    return TraceTool(name=name, duration_seconds=seconds, **more)  # type: ignore[arg-type]


FAMILY = (
    TraceSession(
        session_id="p",
        source="s",
        system_tokens=1024,
        start_offset_seconds=2.0,
        turns=(
            turn(3000, tool=tool("Bash", 1.5)),
            turn(4000, tool=tool("Task", 60.0)),
            turn(5000, gap=30.0),
            turn(2000, tool=tool("Read", 0.25, is_error=True, result_chars=9)),
            turn(2600),
        ),
    ),
    TraceSession(
        session_id="c",
        source="s",
        system_tokens=1024,
        parent="p",
        parent_turn=1,
        turns=(turn(1500), turn(1600)),
    ),
    TraceSession(
        session_id="lost", parent="nobody", parent_turn=3, start_offset_seconds=7.0, turns=(turn(100),)
    ),
)


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_dynamo_rows_carry_dependencies_and_tool_time_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    assert write_dynamo_agentic(path, iter(FAMILY)) == 3
    rows = {str(row["request_id"]): row for row in rows_of(path)}
    assert rows["p:0"]["wait_for"] == []
    assert rows["p:0"]["timestamp"] == 2000.0
    assert rows["p:1"]["wait_for"] == ["p:0"]
    assert (rows["p:1"]["tool_wait_ms"], rows["p:1"]["delay"]) == (1500.0, 0.0)
    assert rows["p:1"]["branches"] == ["c:0"]
    assert rows["c:0"]["wait_for"] == ["p:1"]
    assert rows["p:2"]["wait_for"] == ["p:1", "c:1"]
    assert rows["p:3"]["delay"] == 30_000.0
    assert "tool_wait_ms" not in rows["p:3"]
    assert rows["p:4"]["tool_events"] == [
        {"tool_class": "Read", "duration_ms": 250.0, "status": "error", "output_bytes": 9}
    ]
    assert (rows["lost:0"]["wait_for"], rows["lost:0"]["timestamp"]) == ([], 7000.0)


def test_dynamo_blocks_are_shared_where_prompts_are(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_dynamo_agentic(path, FAMILY)
    ids = {str(row["request_id"]): row["hash_ids"] for row in rows_of(path)}
    blocks = {name: list(value) for name, value in ids.items() if isinstance(value, list)}
    assert all(len(blocks[f"p:{i}"]) == -(-n // 512) for i, n in enumerate([3000, 4000, 5000, 2000, 2600]))
    assert blocks["p:1"][:5] == blocks["p:0"][:5]  # whole blocks stay, the partial one does not
    assert blocks["p:1"][5] != blocks["p:0"][5]
    assert blocks["p:3"][:2] == blocks["p:0"][:2]  # compaction keeps the system prompt only
    assert set(blocks["p:3"][2:]).isdisjoint(blocks["p:2"])
    assert blocks["c:0"][:2] == blocks["p:0"][:2]
    assert set(blocks["c:0"][2:]).isdisjoint(blocks["p:4"] + blocks["p:2"])


def test_dynamo_comes_back_with_its_structure(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    write_dynamo_agentic(path, FAMILY)
    by_id = {session.session_id: session for session in read_trace(path)}
    for before in FAMILY:
        after = by_id[before.session_id]
        assert _shape(after) == _shape(before)
    assert (by_id["c"].parent, by_id["c"].parent_turn) == ("p", 1)


def test_aiperf_states_what_is_added_and_cuts_at_compaction(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_aiperf_mooncake(path, FAMILY[:1])
    assert rows_of(path) == [
        {"session_id": "p", "timestamp": 2000.0, "input_length": 3000, "output_length": 10},
        {"session_id": "p", "delay": 1500.0, "input_length": 990, "output_length": 10},
        {"session_id": "p", "delay": 60000.0, "input_length": 990, "output_length": 10},
        {"session_id": "p#2", "timestamp": 93500.0, "input_length": 2000, "output_length": 10},
        {"session_id": "p#2", "delay": 250.0, "input_length": 590, "output_length": 10},
    ]
    before, after = read_trace(path)
    assert [t.prompt_tokens for t in before.turns] == [3000, 4000, 5000]
    assert [t.prompt_tokens for t in after.turns] == [2000, 2600]


@pytest.mark.parametrize("write", [write_dynamo_agentic, write_aiperf_mooncake])
def test_the_sample_survives_and_is_written_the_same_each_time(write: object, tmp_path: Path) -> None:
    assert callable(write)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    write(one, read_trace(sample_path()))
    write(two, read_trace(sample_path()))
    assert one.read_bytes() == two.read_bytes()
    before = list(read_trace(sample_path()))
    after = list(read_trace(one))
    assert sum(len(s.turns) for s in after) == sum(len(s.turns) for s in before)
    assert sum(map(_waits_within, after)) == pytest.approx(sum(map(_waits_within, before)), abs=0.1)


def _waits_within(session: TraceSession) -> float:
    """Seconds between turns that extend one another."""
    return sum(
        turn.tool_seconds + turn.human_seconds
        for i, turn in enumerate(session.turns[:-1])
        if not session.starts_new_prefix(i + 1)
    )


def _shape(session: TraceSession) -> Sequence[tuple[object, ...]]:
    last = len(session.turns) - 1
    return [
        (
            t.prompt_tokens,
            t.output_tokens,
            round(t.tool_seconds, 3) if i < last else 0.0,
            round(t.human_seconds, 3) if i < last else 0.0,
            session.starts_new_prefix(i),
        )
        for i, t in enumerate(session.turns)
    ]


some_turns = st.lists(
    st.builds(
        turn,
        st.integers(1, 20_000),
        st.integers(0, 500),
        st.none()
        | st.builds(tool, st.sampled_from(["Bash", "Read"]), st.integers(0, 9000).map(lambda n: n / 8)),
        st.none() | st.integers(1, 9000).map(lambda n: n / 8),
    ),
    min_size=1,
    max_size=6,
).map(tuple)


@given(st.lists(some_turns, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_dynamo_round_trip_keeps_every_length_and_wait(
    tmp_path_factory: pytest.TempPathFactory, every: list[tuple[TraceTurn, ...]]
) -> None:
    sessions = [TraceSession(session_id=f"s{i}", turns=turns) for i, turns in enumerate(every)]
    path = tmp_path_factory.mktemp("dynamo") / "t.jsonl"
    write_dynamo_agentic(path, sessions)
    assert [_shape(s) for s in read_trace(path)] == [_shape(s) for s in sessions]
