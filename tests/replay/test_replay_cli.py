"""`tao replay` as a user runs it: a process of its own, its exit codes, its output, and Ctrl-C."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from tao.traces import TraceSession, TraceTurn, write_native
from tests.replay.fake_endpoint import FakeEndpoint
from tests.replay.test_replay import hang, session, wrong


async def tao(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tao",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30.0)
    return process.returncode, out.decode(), err.decode()


def trace_file(folder: Path, *sessions: TraceSession) -> str:
    path = folder / "trace.jsonl"
    write_native(path, sessions)
    return str(path)


async def test_a_run_writes_a_table_and_the_json_row(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    trace = trace_file(tmp_path, *(session(f"s{i}", [500, 900]) for i in range(4)))
    out_path = tmp_path / "out.json"
    arguments = ("replay", trace, "--target", endpoint.url, "--concurrency", "2", "--speed", "500")
    code, out, err = await tao(*arguments, "--json", str(out_path))
    assert code == 0
    assert "failed" not in err
    assert "session latency" in out
    row = json.loads(out_path.read_text())
    assert (row["sessions"], row["turns"], row["errors"]) == (4, 8, {})
    assert row["model"] == "fake-model"
    assert row["latency_seconds"]["mean"] >= 1.0
    assert set(row) >= {
        "ttft_seconds",
        "tool_end_to_first_token_seconds",
        "hold_seconds",
        "decode_tokens_per_second",
        "makespan_seconds",
        "prefix_hit_rate",
    }
    code, out, _ = await tao(*arguments, "--json", "-", "--sessions", "1")
    assert json.loads(out)["sessions"] == 1


async def test_failures_are_told_and_only_a_total_failure_is_an_exit_code(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    trace = trace_file(tmp_path, session("a", [100]), session("b", [100]))
    endpoint.faults.append(wrong)
    code, _, err = await tao("replay", trace, "--target", endpoint.url)
    assert code == 0
    assert "http_400: turns failed 1" in err
    assert "no such model" in err
    endpoint.faults.extend([wrong, wrong])
    code, _, _ = await tao("replay", trace, "--target", endpoint.url)
    assert code == 1


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ('{"session_id": "a", "turns": []}\n', (), "trace.jsonl:1: not a session"),
        ("", (), "the trace is empty"),
        (None, (), "cannot be read"),
        (
            '{"session_id":"a","turns":[{"prompt_tokens":9,"output_tokens":1}]}',
            ("--target", "nowhere"),
            "target must",
        ),
        (
            '{"session_id":"a","turns":[{"prompt_tokens":9,"output_tokens":1}]}',
            ("--target", "http://127.0.0.1:99999"),
            "target 'http://127.0.0.1:99999': Port out of range",
        ),
        (
            '{"session_id":"a","turns":[{"prompt_tokens":9,"output_tokens":1}]}',
            ("--speed", "0"),
            "speed must",
        ),
        (
            '{"session_id":"a","turns":[{"prompt_tokens":9,"output_tokens":1}]}',
            ("--max-prompt-tokens", "5"),
            "no session is left",
        ),
    ],
)
async def test_bad_input_is_exit_code_2(
    tmp_path: Path, content: str | None, options: tuple[str, ...], says: str
) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_text(content)
    code, _, err = await tao("replay", str(path), "--target", "http://127.0.0.1:9", *options)
    assert code == 2
    assert says in err.replace("\n", " ")


async def test_ctrl_c_ends_at_once_and_gives_the_figures_so_far(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    done = TraceSession(session_id="done", turns=(TraceTurn(prompt_tokens=100, output_tokens=3),))
    trace = trace_file(tmp_path, done, session("hangs", [100]))
    out_path = tmp_path / "out.json"
    endpoint.faults.extend([None, hang])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tao", "replay", trace, "--target", endpoint.url,
        "--concurrency", "1", "--json", str(out_path),
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await asyncio.wait_for(endpoint.received(2), 20.0)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 10.0)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err
    row = json.loads(out_path.read_text())
    assert (row["interrupted"], row["turns"]) == (True, 1)
