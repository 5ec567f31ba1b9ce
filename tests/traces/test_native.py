"""Our own format: reading, writing, what is refused and how it is named, and the sample."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.traces import (
    SkippedLines,
    TraceError,
    TraceSession,
    TraceTool,
    TraceTurn,
    read_trace,
    sample_path,
    select_sessions,
    write_native,
)

LINE = {
    "session_id": "a",
    "source": "x",
    "start_offset_s": 0,
    "turns": [
        {
            "prompt_tokens": 10,
            "output_tokens": 2,
            "llm_s": None,
            "tool": {"name": "bash", "command_head": None, "duration_s": 1, "duration_est": True},
        },
        {"prompt_tokens": 20, "output_tokens": 3, "tool": None, "user_gap_s": 4.5, "unheard_of": {}},
    ],
}


def written(folder: Path, *lines: object, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_the_fields_arrive_with_units_in_their_names(tmp_path: Path) -> None:
    (session,) = read_trace(written(tmp_path, LINE))
    first, second = session.turns
    assert first.tool == TraceTool(name="bash", duration_seconds=1.0, duration_is_estimate=True)
    assert (first.tool_seconds, first.human_seconds) == (1.0, 0.0)
    assert (second.tool_seconds, second.human_seconds) == (0.0, 4.5)
    assert session.shared_prefix_tokens is None


def test_a_wait_for_the_user_is_no_tool_time() -> None:
    turn = TraceTurn(
        prompt_tokens=1,
        output_tokens=1,
        tool=TraceTool(name="user_wait", duration_seconds=9.0),
        user_gap_seconds=1.0,
    )
    assert (turn.tool_seconds, turn.human_seconds) == (0.0, 10.0)


@pytest.mark.parametrize(
    ("before", "after", "reset"), [(1000, 985, False), (1000, 970, True), (1000, 1000, False)]
)
def test_a_prompt_that_shrinks_by_more_than_noise_is_a_new_prefix(
    before: int, after: int, reset: bool
) -> None:
    turns = tuple(TraceTurn(prompt_tokens=n, output_tokens=1) for n in (before, after))
    session = TraceSession(session_id="a", turns=turns)
    assert session.starts_new_prefix(0)
    assert session.starts_new_prefix(1) is reset


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json", "not a session: JSON is malformed"),
        ("[]", "Expected `object`, got `array`"),
        ({"turns": [{"prompt_tokens": 1, "output_tokens": 1}]}, "missing required field `session_id`"),
        ({"session_id": "", "turns": [{"prompt_tokens": 1, "output_tokens": 1}]}, "$.session_id"),
        ({"session_id": "b", "turns": []}, "$.turns"),
        (
            {"session_id": "b", "turns": [{"prompt_tokens": -1, "output_tokens": 1}]},
            "$.turns[0].prompt_tokens",
        ),
        (
            {"session_id": "b", "turns": [{"prompt_tokens": 1.5, "output_tokens": 1}]},
            "$.turns[0].prompt_tokens",
        ),
        (
            {"session_id": "b", "turns": [{"prompt_tokens": 1, "output_tokens": 1, "tool": {"name": "x"}}]},
            "missing required field `duration_s`",
        ),
        ('{"session_id":"b","turns":[{"prompt_tokens":1,"output_tokens":1,"llm_s":NaN}]}', "malformed"),
        ("[" * 100_000, "not a session"),
        (LINE, "session id 'a' is also on line 1"),
    ],
)
def test_bad_lines_are_named_and_refused_or_counted(tmp_path: Path, line: object, says: str) -> None:
    good = {**LINE, "session_id": "c"}
    path = written(tmp_path, LINE, "", line, good)
    with pytest.raises(TraceError) as error:
        list(read_trace(path))
    assert str(error.value).startswith(f"{path}:3: ")
    assert says in str(error.value)
    skipped = SkippedLines()
    assert [s.session_id for s in read_trace(path, on_bad_line=skipped)] == ["a", "c"]
    assert skipped.count == 1
    assert skipped.first[0].line == 3


def test_reading_streams(tmp_path: Path) -> None:
    path = written(tmp_path, LINE, "broken")
    sessions = read_trace(path)
    assert next(sessions).session_id == "a"
    with pytest.raises(TraceError):
        next(sessions)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.jsonl: cannot be read: No such file"):
        list(read_trace(tmp_path / "gone.jsonl"))
    with pytest.raises(TraceError, match="the folder holds no"):
        list(read_trace(tmp_path))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(LINE).encode() * 50)[:-9])
    with pytest.raises(TraceError, match=r"cut\.jsonl\.gz:1: the file is damaged"):
        list(read_trace(cut))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao.traces.lines.LINE_BYTES_MAX", 1000)
    with pytest.raises(TraceError, match="longer than 1000 bytes"):
        list(read_trace(written(tmp_path, "x" * 2000)))


def test_gzip_is_known_by_content_and_written_the_same_each_time(tmp_path: Path) -> None:
    session = next(read_trace(written(tmp_path, LINE)))
    one, two = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    assert write_native(one, [session]) == 1
    write_native(two, [session])
    assert one.read_bytes() == two.read_bytes()
    renamed = one.rename(tmp_path / "plain.jsonl")
    assert list(read_trace(renamed)) == [session]


def test_the_sample_is_small_and_whole() -> None:
    sessions = list(read_trace(sample_path()))
    assert sample_path().stat().st_size < 200_000
    assert sample_path().with_name("NOTICE.md").is_file()
    assert len(sessions) == 40
    assert len({s.session_id for s in sessions}) == 40
    assert {s.licence for s in sessions} <= {"MIT", "Apache-2.0"}
    assert {s.agent for s in sessions} == {"mini-swe-agent", "claude-code", "codex"}
    assert max(s.peak_prompt_tokens for s in sessions) < 131_072
    # What it is for: 32 of these at once do not fit into two replicas of 320,000 KV tokens.
    means = [sum(t.prompt_tokens for t in s.turns) / len(s.turns) for s in sessions]
    assert 32 * sum(means) / len(means) > 640_000


def test_selection_cuts_drops_orders_and_frees_orphans() -> None:
    def session(name: str, *prompts: int, parent: str | None = None) -> TraceSession:
        turns = tuple(TraceTurn(prompt_tokens=n, output_tokens=10) for n in prompts)
        return TraceSession(session_id=name, turns=turns, parent=parent, parent_turn=1 if parent else None)

    trace = [session("a", 10, 90, 200), session("b", 500), session("kid", 20, parent="a"), session("c", 10)]
    cut = select_sessions(trace, prompt_tokens_max=100)
    assert [s.session_id for s in cut.sessions] == ["a", "kid", "c"]
    assert (cut.sessions_shortened, cut.sessions_dropped) == (1, 1)
    assert len(cut.sessions[0].turns) == 2
    assert cut.sessions[1].parent == "a"
    assert select_sessions(trace, prompt_tokens_max=60).sessions[1].parent is None  # its turn was cut away
    shuffled = [[s.session_id for s in select_sessions(trace, seed=seed).sessions] for seed in (1, 1, 2)]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert len(select_sessions(trace, count_max=2).sessions) == 2


tools = st.builds(
    TraceTool,
    name=st.text(min_size=1, max_size=20),
    duration_seconds=st.floats(0, 1e9),
    command_head=st.none() | st.text(max_size=9),
    background=st.booleans(),
    result_chars=st.none() | st.integers(0, 10**9),
)
turns = st.builds(
    TraceTurn,
    prompt_tokens=st.integers(0, 10**8),
    output_tokens=st.integers(0, 10**8),
    cached_tokens=st.none() | st.integers(0, 10**8),
    tool=st.none() | tools,
    tools=st.lists(tools, max_size=3).map(tuple),
    prefix_reset=st.booleans(),
)
some_sessions = st.lists(
    st.builds(
        TraceSession,
        session_id=st.text(min_size=1, max_size=40),
        turns=st.lists(turns, min_size=1, max_size=5).map(tuple),
        parent=st.none() | st.text(min_size=1, max_size=5),
    ),
    max_size=5,
    unique_by=lambda s: s.session_id,
)


@given(some_sessions)
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[TraceSession]
) -> None:
    path = tmp_path_factory.mktemp("round") / "t.jsonl"
    write_native(path, sessions)
    assert list(read_trace(path, trace_format="tao")) == sessions


@given(st.binary(max_size=400) | st.text(max_size=300).map(str.encode))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_named(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_bytes(content)
    try:
        list(read_trace(path, trace_format="tao"))
    except TraceError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right


FULL_TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.mark.skipif(not FULL_TRACES.is_dir(), reason="the full traces are not beside the project")
@pytest.mark.parametrize(
    ("name", "sessions", "turns", "tool_phases"),
    [
        ("mini_swe_agent_swebench_verified", 500, 20_163, 19_663),
        ("claude_code_kv_cache_tester", 741, 45_045, 37_960),
        ("codex_skills", 3, 325, 267),
    ],
)
def test_the_full_traces_hold_what_they_say(name: str, sessions: int, turns: int, tool_phases: int) -> None:
    every = list(read_trace(FULL_TRACES / f"{name}.jsonl.gz"))
    assert len(every) == sessions
    assert sum(len(s.turns) for s in every) == turns
    assert sum(t.tool is not None for s in every for t in s.turns) == tool_phases


@pytest.mark.skipif(not FULL_TRACES.is_dir(), reason="the full traces are not beside the project")
def test_the_sample_holds_whole_sessions_of_the_full_traces() -> None:
    full = {
        s.session_id: s
        for name in ("mini_swe_agent_swebench_verified", "claude_code_ts_app")
        for s in read_trace(FULL_TRACES / f"{name}.jsonl.gz")
    }
    shared = [s for s in read_trace(sample_path()) if s.session_id in full]
    assert len(shared) == 34
    assert all(full[s.session_id] == s for s in shared)
