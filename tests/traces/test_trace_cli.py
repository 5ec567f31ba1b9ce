"""`tao trace` as a user calls it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli.trace import command
from tao.traces import detect_format, read_trace, sample_path
from tests.traces.test_readers import TRACES


def tao_trace(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize("target", ["tao", "dynamo-agentic", "aiperf-mooncake"])
def test_convert_writes_the_format_asked_for(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    result = tao_trace("convert", str(TRACES["claude-code"]), str(out), "--to", target)
    assert (result.exit_code, result.output) == (0, f"{out}: 2 sessions, format {target}\n")
    assert detect_format(out).name == target
    assert sum(len(session.turns) for session in read_trace(out)) == 8


def test_convert_cuts(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert (
        tao_trace("convert", "sample", str(out), "--sessions", "3", "--max-prompt-tokens", "9000").exit_code
        == 0
    )
    sessions = list(read_trace(out))
    assert len(sessions) == 3
    assert max(session.peak_prompt_tokens for session in sessions) < 9000


def test_stats_as_json_and_as_tables() -> None:
    figures = json.loads(tao_trace("stats", str(TRACES["weka"]), "--json").output)
    assert (figures["sessions"], figures["children"], figures["turns"], figures["compactions"]) == (
        3,
        2,
        8,
        1,
    )
    assert figures["tool_seconds_by_name"]["Task"]["total"] == 39.0
    assert figures["human_seconds"] == {
        "count": 1,
        "total": 120.0,
        "p50": 120.0,
        "p90": 120.0,
        "p99": 120.0,
        "max": 120.0,
    }
    shown = tao_trace("stats", str(TRACES["weka"])).output
    assert "3 sessions (2 sub-agents), 8 turns, compactions: 1" in shown
    assert "Task" in shown
    assert "Tool phases by tool" in shown


def test_stats_of_a_trace_without_tools_show_no_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "one-turn.jsonl"
    path.write_text(TRACES["mooncake"].read_text().splitlines(keepends=True)[0])
    shown = tao_trace("stats", str(path)).output
    assert "turns per session" in shown
    assert "Tool phases by tool" not in shown


def test_sample_draws_whole_families_and_the_same_ones_each_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for out in (one, two):
        assert tao_trace("sample", "sample", str(out), "--sessions", "5", "--seed", "4").exit_code == 0
    assert one.read_bytes() == two.read_bytes()
    assert len(list(read_trace(one))) == 5
    assert {s.session_id for s in read_trace(one)} <= {s.session_id for s in read_trace(sample_path())}
    assert tao_trace("sample", str(TRACES["weka"]), str(two), "--sessions", "1").exit_code == 0
    assert [s.parent for s in read_trace(two)] == [None, "w1", "w1"]


def test_bad_lines_end_it_with_code_2_or_are_told(tmp_path: Path) -> None:
    path, out = tmp_path / "bad.jsonl", tmp_path / "out.jsonl"
    path.write_text(TRACES["mooncake"].read_text() + "{oops\n")
    refused = tao_trace("convert", str(path), str(out))
    assert refused.exit_code == 2
    assert "bad.jsonl:8: " in refused.output
    told = tao_trace("convert", str(path), str(out), "--skip-bad-lines")
    assert told.exit_code == 0
    assert "bad lines skipped: 1" in told.output
    assert tao_trace("sample", str(path), str(out), "--sessions", "9", "--skip-bad-lines").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", "/nowhere"),
        ("convert", "sample", "/nowhere/out.jsonl"),
        ("stats", "sample", "--from", "weka"),
    ],
)
def test_what_cannot_be_read_or_written_is_code_2(arguments: tuple[str, ...]) -> None:
    result = tao_trace(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
