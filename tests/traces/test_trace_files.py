"""Trace files as a file system has them: replaced only when whole, marked by a byte order, not rewindable, damaged."""

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli.trace import command
from tao.traces import TraceError, TraceSession, read_trace, sample_path, write_native

LINE = b'{"session_id":"a","turns":[{"prompt_tokens":10,"output_tokens":1}]}\n'


def tao_trace(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def sessions_in(path: Path) -> list[TraceSession]:
    return list(read_trace(path))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    assert tao_trace("sample", "sample", str(path), "--sessions", "6").exit_code == 0
    return path


@pytest.mark.parametrize("target", ["tao", "dynamo-agentic", "aiperf-mooncake"])
def test_a_trace_can_be_converted_in_its_place(trace: Path, target: str) -> None:
    before = sessions_in(trace)
    assert tao_trace("convert", str(trace), str(trace), "--to", target).exit_code == 0
    assert sum(len(one.turns) for one in sessions_in(trace)) == sum(len(one.turns) for one in before)


def test_a_trace_can_be_sampled_in_its_place(trace: Path) -> None:
    before = sessions_in(trace)
    assert tao_trace("sample", str(trace), str(trace), "--sessions", "2").exit_code == 0
    kept = sessions_in(trace)
    assert len(kept) == 2
    assert all(session in before for session in kept)


def test_what_breaks_off_leaves_the_output_as_it_was(trace: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(LINE + b'{"session_id":')
    before = trace.read_bytes()
    result = tao_trace("convert", str(broken), str(trace))
    assert result.exit_code == 2
    assert "broken.jsonl:2: not a session" in result.output
    assert trace.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [broken, trace], "nothing half-written is left"


def test_an_interrupted_output_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[TraceSession]:
        yield from sessions_in(sample_path())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_native(tmp_path / "out.jsonl.gz", interrupted())
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed(trace: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(trace)
    assert tao_trace("sample", "sample", str(link), "--sessions", "3").exit_code == 0
    assert link.is_symlink()
    assert len(sessions_in(trace)) == 3


def test_a_hyphen_is_the_output() -> None:
    result = tao_trace("convert", "sample", "-", "--sessions", "2")
    assert result.exit_code == 0
    assert [json.loads(line)["session_id"] for line in result.stdout.splitlines()] == [
        session.session_id for session in sessions_in(sample_path())[:2]
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("target", ["tao", "dynamo-agentic", "aiperf-mooncake"])
def test_a_full_disk_is_told(target: str) -> None:
    result = tao_trace("convert", "sample", "/dev/full", "--to", target)
    assert result.exit_code == 2
    assert "/dev/full: cannot be written: No space left on device" in result.output


def test_a_pipe_is_refused_with_what_to_do(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDWR)), daemon=True)
    writer.start()
    with pytest.raises(TraceError, match=r"pipe\.jsonl: is no file; .* write it to a file first"):
        sessions_in(pipe)
    writer.join(10)


@pytest.mark.parametrize(
    "document", [LINE, b"[" + LINE.strip() + b"]", json.dumps({"requests": []}).encode()]
)
def test_a_byte_order_mark_is_passed_over(document: bytes, tmp_path: Path) -> None:
    plain, marked = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    plain.write_bytes(document)
    marked.write_bytes(b"\xef\xbb\xbf" + document)
    told = [tao_trace("stats", str(path), "--json").output.replace(path.name, "") for path in (plain, marked)]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x01\x02", ":1: not JSON"),
        (LINE.decode().encode("utf-16"), ":1: not JSON"),
        (b"\n\n{broken\n", ":3: not JSON"),
        (b"[" * 50_000, ":1: not JSON: maximum recursion depth"),
        (LINE.replace(b"10", b"1" + b"0" * 5_000), ":1: not JSON"),
        (b"[" + LINE.strip() + b"," + LINE.strip() + b"]", "one record a line is wanted, not an array"),
        (b'[{"input_length":5,"output_length":1}]', "one record a line is wanted, not an array"),
        (b'"a text"\n7\n', "no known trace format"),
        (b'{"type":["user"],"uuid":"1"}\n{"type":{},"payload":1}\n', "no known trace format"),
    ],
)
def test_a_file_that_is_no_trace_says_where_and_why(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError) as told:
        sessions_in(path)
    assert str(path) in str(told.value)
    assert message in str(told.value)


def test_a_damaged_document_over_many_lines_is_told(tmp_path: Path) -> None:
    whole = b'{"id":"x",\n' + b'"models":["m"],\n' * 50_000 + b'"requests":[]}'
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(whole)[:-200])
    with pytest.raises(TraceError, match="the file is damaged"):
        sessions_in(path)
