"""Each reader on a small file of its format made for it: what arrives in the one session model, and what must not."""

from pathlib import Path

import pytest

from tao.traces import (
    FORMATS,
    SkippedLines,
    TraceError,
    TraceSession,
    TraceTool,
    detect_format,
    read_trace,
    write_native,
)

DATA = Path(__file__).with_name("data")
TRACES = {
    "weka": DATA / "weka.json",
    "mooncake": DATA / "mooncake.jsonl",
    "aiperf-mooncake": DATA / "aiperf-mooncake.jsonl",
    "dynamo-agentic": DATA / "dynamo-agentic.jsonl",
    "tracelab": DATA / "tracelab.jsonl",
    "claude-code": DATA / "claude-code",
    "codex": DATA / "codex",
}


def sessions_of(name: str) -> list[TraceSession]:
    return list(read_trace(TRACES[name]))


def prompts(session: TraceSession) -> list[int]:
    return [turn.prompt_tokens for turn in session.turns]


def waits(session: TraceSession) -> list[tuple[str | None, float, float]]:
    """(tool, its seconds, human seconds) after each turn but the last."""
    return [
        (
            turn.tool.name if turn.tool is not None else None,
            turn.tool.duration_seconds if turn.tool is not None else 0.0,
            turn.user_gap_seconds or 0.0,
        )
        for turn in session.turns[:-1]
    ]


def test_every_format_has_its_file_and_is_recognised() -> None:
    assert {one.name for one in FORMATS} - {"tao"} == set(TRACES)
    for name, path in TRACES.items():
        assert detect_format(path).name == name


def test_weka() -> None:
    main, explorer, planner = sessions_of("weka")
    assert (main.session_id, main.model, main.shared_prefix_tokens) == ("w1", "claude-x", 256)
    assert prompts(main) == [640, 768, 896, 900, 960]
    assert waits(main) == [("unknown", 3.0, 0.0), ("Task", 34.0, 0.0), (None, 0.0, 120.0), ("Task", 5.0, 0.0)]
    assert [t.cached_tokens for t in main.turns] == [0, 640, 768, 128, 896]
    assert [main.starts_new_prefix(i) for i in range(5)] == [True, False, False, True, False]
    assert main.turns[1].ttft_seconds == 0.4
    assert (explorer.session_id, explorer.parent, explorer.parent_turn) == ("w1-sub0", "w1", 1)
    assert (explorer.start_offset_seconds, prompts(explorer)) == (6.5, [320, 384])
    assert waits(explorer) == [("unknown", 3.0, 0.0)]
    assert (planner.parent_turn, planner.start_offset_seconds) == (3, 166.0)  # absolute inner times
    assert main.turns[3].tool is not None
    assert main.turns[3].tool.background


def test_mooncake_states_whole_prompts_and_rows_without_session_stand_alone() -> None:
    by_id = {session.session_id: session for session in sessions_of("mooncake")}
    assert set(by_id) == {"line-1", "s", "line-5", "t"}
    assert prompts(by_id["line-1"]) == [6955]
    s = by_id["s"]
    assert (s.start_offset_seconds, prompts(s)) == (1.0, [1500, 2000, 1000])
    assert [t.cached_tokens for t in s.turns] == [0, 1000, 0]
    assert [s.starts_new_prefix(i) for i in range(3)] == [True, False, True]
    assert waits(s)[0] == ("unknown", 2.4, 0.0)
    (wait,) = [turn.tool for turn in by_id["t"].turns if turn.tool is not None]
    assert wait == TraceTool(name="unknown", duration_seconds=3.0, duration_is_estimate=True)


def test_aiperf_rows_add_to_the_history() -> None:
    by_id = {session.session_id: session for session in sessions_of("aiperf-mooncake")}
    assert prompts(by_id["s1"]) == [4000, 4720, 4820]
    assert waits(by_id["s1"]) == [("unknown", 2.4, 0.0), ("unknown", 0.0, 0.0)]
    assert prompts(by_id["s2"]) == [31, 91]  # whole messages, roles included, four characters a token
    assert prompts(by_id["s3"]) == [101, 122]  # message deltas
    assert by_id["s2"].turns[0].prompt_is_estimate
    assert not by_id["s1"].turns[0].prompt_is_estimate


def test_dynamo_keeps_tools_apart_and_knows_children() -> None:
    child, root = sessions_of("dynamo-agentic")
    assert (root.session_id, root.parent, prompts(root)) == ("root", None, [4000, 9000, 9500])
    assert waits(root) == [("Task", 1.83, 0.005), ("Bash", 2.0, 60.0)]
    assert [tool.name for tool in root.turns[1].tools] == ["Bash", "Read"]
    assert root.turns[1].tools[0].is_error
    assert root.turns[1].cached_tokens == 9000 * 8 // 18
    assert (child.parent, child.parent_turn, child.start_offset_seconds) == ("root", 0, 3.0)
    assert waits(child) == [("Grep", 0.5, 0.0)]
    assert child.turns[0].tool is not None
    assert child.turns[0].tool.result_chars == 77


def test_tracelab() -> None:
    codex, claude = sessions_of("tracelab")
    assert (claude.agent, claude.model, prompts(claude)) == ("claude-code", "claude-x", [32272, 35740, 12000])
    assert waits(claude) == [("WebSearch", 19.0, 0.0), (None, 0.0, 60.0)]
    first = claude.turns[0]
    assert first.llm_seconds == 11.0
    assert [(t.name, t.command_head, t.duration_seconds) for t in first.tools] == [
        ("Bash", "ls", 0.86),
        ("WebSearch", None, 19.0),
    ]
    assert claude.starts_new_prefix(2)
    assert (codex.agent, codex.turns[0].reasoning_tokens) == ("codex", 4)


def test_claude_code() -> None:
    main, agent = sessions_of("claude-code")
    assert main.agent == "claude-code"
    assert prompts(main) == [10010, 10515, 10820, 11125, 3905, 4005]
    assert [t.output_tokens for t in main.turns] == [90, 80, 60, 70, 30, 20]
    assert [t.cached_tokens for t in main.turns] == [8000, 10010, 10515, 10820, 900, 3900]
    assert waits(main) == [
        ("Bash", 4.5, 0.0),
        ("mcp", 3.5, 0.0),
        (None, 0.0, 60.0),
        ("Task", 36.0, 0.0),
        ("user_wait", 60.0, 0.0),
    ]
    bash = main.turns[0].tool
    assert bash is not None
    assert (bash.command_head, bash.declared_timeout_seconds, bash.result_chars) == ("pytest", 120.0, 7)
    second = main.turns[1]
    assert [(t.name, t.duration_seconds, t.is_error) for t in second.tools] == [
        ("mcp", 4.0, True),
        ("Read", 0.5, False),
    ]
    assert main.turns[0].llm_seconds == 5.0
    assert [main.starts_new_prefix(i) for i in range(6)] == [True, False, False, False, True, False]
    assert (agent.parent, agent.parent_turn) == (main.session_id, 3)
    assert prompts(agent) == [4005, 4110]
    assert waits(agent) == [("Grep", 1.0, 0.0)]


def test_claude_code_sidechains_inside_the_file_are_children_too(tmp_path: Path) -> None:
    main = (DATA / "claude-code/project/a1b2.jsonl").read_text().replace('"agentId":"agentX"', '"other":1')
    agent = (
        (DATA / "claude-code/project/a1b2/subagents/agent-agentX.jsonl")
        .read_text()
        .replace(',"agentId":"agentX"', "")
    )
    path = tmp_path / "old.jsonl"
    path.write_text(main + agent)
    parent, child = read_trace(path)
    assert (child.parent, child.parent_turn) == (parent.session_id, 3)


def test_codex() -> None:
    main, child = sessions_of("codex")
    assert (main.agent, main.model, prompts(main)) == ("codex", "gpt-x", [10000, 10400, 11000, 4000])
    assert [t.reasoning_tokens for t in main.turns] == [40, 0, 0, 0]
    assert waits(main) == [("shell", 2.3, 0.0), ("apply_patch", 0.5, 0.0), (None, 0.0, 60.0)]
    search, status = main.turns[0].tools
    assert (search.command_head, search.declared_timeout_seconds, search.wall_seconds) == ("rg", 1.0, 0.4)
    assert search.is_error
    assert (status.command_head, status.sleep_seconds, status.is_error) == ("sleep", 2.0, False)
    assert main.turns[0].llm_seconds == 6.5
    assert main.starts_new_prefix(3)
    assert (child.parent, child.parent_turn) == (main.session_id, 1)


@pytest.mark.parametrize("name", ["claude-code", "codex", "tracelab", "aiperf-mooncake"])
def test_no_text_of_a_log_survives_reading(name: str, tmp_path: Path) -> None:
    raw = b"".join(
        file.read_bytes() for file in [TRACES[name], *TRACES[name].rglob("*.jsonl")] if file.is_file()
    )
    assert b"SECRET" in raw
    out = tmp_path / "out.jsonl"
    assert write_native(out, read_trace(TRACES[name])) > 0
    assert b"SECRET" not in out.read_bytes()


def test_a_json_array_and_json_lines_of_documents_are_read_alike(tmp_path: Path) -> None:
    one = TRACES["weka"].read_text()
    other = one.replace('"w1"', '"w2"')
    (tmp_path / "array.json").write_text(f"[{one},{other}]")
    lines = ["".join(text.splitlines()) for text in (one, other)]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    array = list(read_trace(tmp_path / "array.json"))
    assert array == list(read_trace(tmp_path / "lines.jsonl"))
    assert [s.session_id for s in array if s.parent is None] == ["w1", "w2"]


def test_ids_must_be_unique_across_the_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(TRACES["weka"].read_text())
    with pytest.raises(TraceError, match=r"two\.json:1: session id 'w1' is also in .*one\.json:1"):
        list(read_trace(tmp_path))


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("mooncake", '{"input_length": 5, "hash_ids": []}', "output_length is missing"),
        ("mooncake", '{"output_length": 5, "timestamp": 3}', "input_length is missing"),
        (
            "mooncake",
            '{"session_id": "t", "timestamp": 1, "input_length": 9, "output_length": 1}',
            "in order",
        ),
        ("mooncake", '{"input_length": -5, "output_length": 1}', "$.input_length"),
        ("dynamo-agentic", '{"request_id": "x", "session_id": "root", "output_length": 1}', "input_length"),
        ("tracelab", '{"session_id": "x", "input_tokens_total": "many"}', "$.input_tokens_total"),
        ("aiperf-mooncake", "{", "truncated"),
    ],
)
def test_bad_rows_are_named_and_may_be_skipped(name: str, line: str, says: str, tmp_path: Path) -> None:
    good = TRACES[name].read_text().splitlines()
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([*good, line]) + "\n")
    with pytest.raises(TraceError) as error:
        list(read_trace(path))
    assert str(error.value).startswith(f"{path}:{len(good) + 1}: ")
    assert says in str(error.value)
    skipped = SkippedLines()
    ids = {session.session_id for session in read_trace(path, on_bad_line=skipped)}
    assert skipped.count == 1
    assert ids == {session.session_id for session in sessions_of(name)}


def test_a_format_can_be_named_and_an_unknown_one_lists_the_names(tmp_path: Path) -> None:
    (whole,) = [
        s for s in read_trace(TRACES["aiperf-mooncake"], trace_format="mooncake") if s.session_id == "s1"
    ]
    assert prompts(whole) == [4000, 600, 10]
    with pytest.raises(TraceError, match="known are tao, weka"):
        list(read_trace(TRACES["weka"], trace_format="wekka"))
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"hello": 1}\n')
    with pytest.raises(TraceError, match="no known trace format"):
        list(read_trace(odd))
