"""`tao emulate` as a process: its one line, its end, and bad input."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest


def emulate(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tao", "emulate", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_on_a_signal(number: signal.Signals) -> None:
    process = emulate("--port", "0", "--speed", "5", "--kv-tokens", "64000", "--profile", "glm-4.7-tp8-h100")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("tao emulate: glm-4.7-tp8-h100 as zai-org/GLM-4.7-FP8 at http://127.0.0.1:")
        assert "(speed 5, 64,000 KV tokens)" in line
        url = line.split(" at ")[1].split()[0]
        with urllib.request.urlopen(f"{url}/health") as response:
            assert response.status == 200
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "h100"], "unknown profile 'h100'"),
        (["--speed", "0"], "Invalid value for '--speed'"),
        (["--kv-tokens", "3"], "Invalid value for '--kv-tokens'"),
        (["--script", "none.toml"], "cannot be read"),
        (["--kv-events-replay", "tcp://127.0.0.1:*"], "needs --kv-events"),
        (["--kv-events", "nonsense", "--port", "0"], "cannot bind the KV event endpoints"),
        (["--host", "203.0.113.1", "--port", "0"], "cannot listen on 203.0.113.1:0"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(arguments: list[str], message: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tao", "emulate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
