"""`tao serve` and `tao demo` on the command line: what they say of themselves, and of options that cannot be meant."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from tao.cli import main

URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command sets logging up for the whole process."""
    yield
    structlog.reset_defaults()


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, list(arguments), prog_name="tao")


@pytest.mark.parametrize(
    ("arguments", "says_what"),
    [
        ((), "no replica is named; give at least one --replica URL"),
        (("--replica", "127.0.0.1:8000"), "is not an http(s) URL; write it like http://127.0.0.1:8000"),
        (("--replica", "http://a:1/v1"), "ends in /v1, which clients add themselves"),
        (("--replica", URL, "--replica", URL), "a replica is named twice"),
        (("--replica", URL, "--policy", "toa"), "no policy is named 'toa'; did you mean 'tao'?"),
        (
            ("--replica", URL, "--predictor", "backoff-histo"),
            "no predictor is named 'backoff-histo'; did you mean 'backoff-histogram'? Known: backoff-histogram, emp",
        ),
        (
            ("--replica", URL, "--policy", "round-robin", "--predictor", "constant-5s"),
            "policy 'round-robin' predicts no returns, so a predictor means nothing",
        ),
        (
            ("--replica", URL, "--policy", "round-robin", "--state-file", "learned.json"),
            "policy 'round-robin' predicts no returns, so --state-file means nothing",
        ),
        (
            ("--replica", URL, "--state-file", "/nowhere/learned.json"),
            "/nowhere/learned.json: cannot be written: No such file or directory",
        ),
        (("--replica", URL, "--state-file", "/"), "/: a folder; name a file in it"),
        (("--replica", URL, "--port", "70000"), "port 70000 is not between 0 and 65535"),
        (("--replica", URL, "--port", "-1"), "port -1 is not between 0 and 65535"),
        (("--replica", URL, "--port", "many"), "'many' is not a valid integer"),
        (("--replica", URL, "--speed", "0"), "speed must be a number greater than 0, not 0.0"),
        (("--replica", URL, "--speed", "nan"), "speed must be a number greater than 0, not nan"),
        (
            ("--replica", URL, "--capacity-tokens", "-5"),
            "capacity_tokens must be a number greater than 0, not -5",
        ),
        (("--replica", URL, "--log-level", "loud"), "'loud' is not one of"),
        (
            ("--replica", URL, "--config", "absent.toml"),
            "absent.toml: cannot be read: No such file or directory",
        ),
        (
            ("--replica", URL, "--record-trace", "/nowhere/live.jsonl"),
            "/nowhere/live.jsonl: cannot be written",
        ),
        (("--replica", URL, "--record-trace", __file__), "is there already; name another file, or remove"),
        (
            ("--replica", URL, "--record-trace", "x/../one.json", "--state-file", "one.json"),
            "state_file and record_trace are the same file, x/../one.json: name two",
        ),
        (("--replica", URL, "--record-log", "/nowhere/at/all.log"), "/nowhere/at/all.log"),
        (("--replica", URL, "--host", "192.0.2.1", "--port", "0"), "cannot listen on 192.0.2.1:0"),
        (("--replicas", URL), "No such option"),
    ],
)
def test_serve_refuses_what_cannot_be_meant(arguments: tuple[str, ...], says_what: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 2, result.output
    assert says_what in result.output
    assert "Usage: tao serve" in result.output


def test_serve_names_the_typo_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tao.toml"
    path.write_text('replicas = ["http://127.0.0.1:1"]\n[helth]\nperiod_seconds = 1\n')
    result = run("serve", "--config", str(path))
    assert result.exit_code == 2
    assert f"{path}: unknown key 'helth'; did you mean 'health'?" in result.output


@pytest.mark.parametrize(
    ("arguments", "says_what"),
    [
        (("--policy", "tao,toa"), "no policy is named 'toa'; did you mean 'tao'?"),
        (("--policy", ""), "no policy is named ''"),
        (("--kv-tokens", "16"), "no session of the sample fits into half of 16 KV tokens; give more"),
        (("--speed", "-1"), "is not in the range"),
        (("--speed", "nan"), "is not a number"),
        (("--sessions", "0"), "is not in the range"),
    ],
)
def test_demo_refuses_what_cannot_be_meant(arguments: tuple[str, ...], says_what: str) -> None:
    result = run("demo", *arguments)
    assert result.exit_code == 2, result.output
    assert says_what in result.output


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_help_reads_well(command: str) -> None:
    """Each option says what it does; nothing is cut, and no line is too long for a terminal."""
    result = run(command, "--help")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 100
    assert "..." not in result.output.replace("thunderagent, ...", "")
    options = [number for number, line in enumerate(lines) if line.startswith("  --")]
    for number in options:
        says = lines[number].split("  ", 2)[-1] if "   " in lines[number] else lines[number + 1]
        assert len(says.strip()) > 10, lines[number]


def test_the_list_of_commands_says_what_each_is_for() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "serve" in result.output
    assert "Stand in front of replicas" in result.output
