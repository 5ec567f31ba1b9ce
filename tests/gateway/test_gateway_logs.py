"""The log lines of a process: one an event, readable by people or machines, without prompts, also when something breaks."""

import json
import subprocess
import sys

import pytest

BREAKS = """
import structlog
from tao.gateway.logs import configure_logs

configure_logs({log_format!r}, "info")
log = structlog.get_logger("tao.test")

def serve(prompt):
    raise ValueError("broken on purpose")

log.debug("too small")
log.info("turn finished", session="public/s", turn="t1")
try:
    serve("my secret prompt")
except ValueError:
    log.exception("a request failed", path="/v1/messages")
"""


def lines_of(log_format: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", BREAKS.format(log_format=log_format)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "", "standard output belongs to the command"
    return done.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_logs_never_show_what_a_failing_function_held(log_format: str) -> None:
    lines = lines_of(log_format)
    text = "\n".join(lines)
    assert "ValueError: broken on purpose" in text
    assert "my secret prompt" not in text.replace('serve("my secret prompt")', "")
    assert "too small" not in text


def test_json_is_one_object_a_line() -> None:
    first, second = map(json.loads, lines_of("json"))
    assert first["event"] == "turn finished"
    assert (first["session"], first["turn"], first["level"]) == ("public/s", "t1", "info")
    assert first["timestamp"].endswith("Z")
    assert second["exception"].startswith("Traceback")
