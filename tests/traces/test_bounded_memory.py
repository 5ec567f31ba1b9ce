"""A long trace is read in memory that does not follow its length.

In CI the traces are some megabytes; `TAO_TRACE_MEGABYTES=1000 pytest tests/traces/test_bounded_memory.py` is the same
check at full size (some minutes).
"""

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tao.traces import read_trace

MEGABYTE = 1_000_000
TRACE_BYTES = int(os.environ.get("TAO_TRACE_MEGABYTES", "8")) * MEGABYTE
PEAK_BYTES_MAX = 4 * MEGABYTE
OPEN_SESSIONS = 20  # of a row format, interleaved
ROWS_PER_SESSION = 30


def native_lines() -> Iterator[str]:
    turn = {
        "prompt_tokens": 9000,
        "output_tokens": 90,
        "tool": {"name": "bash", "duration_s": 1.5, "command_head": "ls"},
    }
    number = 0
    while True:
        yield json.dumps({"session_id": f"s{number}", "turns": [turn] * 100})
        number += 1


def mooncake_lines() -> Iterator[str]:
    block = 0
    while True:
        for row in range(ROWS_PER_SESSION):
            for session in range(OPEN_SESSIONS):
                ids = list(range(row * 10 + 10))
                yield json.dumps(
                    {
                        "session_id": f"s{block}-{session}",
                        "input_length": 512 * len(ids),
                        "output_length": 9,
                        "delay": 5,
                        "hash_ids": ids,
                    }
                )
        block += 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("trace_format", "lines"), [("tao", native_lines), ("mooncake", mooncake_lines)])
def test_memory_does_not_follow_the_length(trace_format: str, lines: object, tmp_path: Path) -> None:
    assert callable(lines)
    path = tmp_path / "long.jsonl"
    written = 0
    with path.open("w") as stream:
        for line in lines():
            written += stream.write(line + "\n")
            if written >= TRACE_BYTES:
                break
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_trace(path, trace_format=trace_format))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count > 100
    # Ids are remembered to refuse doubles: some 200 bytes a session.
    assert peak < PEAK_BYTES_MAX + 300 * count
