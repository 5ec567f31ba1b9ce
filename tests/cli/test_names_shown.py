"""Names out of files in tables: brackets are no markup, and nothing in a name steers the terminal."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tao.cli import main
from tao.enginemodel import profile as profile_module
from tao.enginemodel import profile_names
from tao.report.terminal import shown

NAME = "[/red]:smile:\x1b[31m"
SHOWN = "[/red]:smile:\\x1b[31m"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    tool = {"name": NAME, "duration_s": 1}
    turns = [
        {"prompt_tokens": 100, "output_tokens": 10, "tool": tool},
        {"prompt_tokens": 130, "output_tokens": 5},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"session_id": NAME, "turns": turns}) + "\n")
    return path


def test_letters_are_shown_as_they_are() -> None:
    assert shown("tao+told-returns, façade 東") == "tao+told-returns, façade 東"
    assert shown(NAME) == SHOWN


@pytest.mark.parametrize("command", [("trace", "stats"), ("predict",)])
def test_tools_of_a_trace(command: tuple[str, ...], trace: Path) -> None:
    assert SHOWN in run(*command, str(trace))


def test_a_profile_in_a_title(trace: Path, tmp_path: Path) -> None:
    packaged = Path(profile_module.__file__).parent / "profiles" / f"{profile_names()[0]}.toml"
    mine = tmp_path / "mine.toml"
    mine.write_text(packaged.read_text().replace(profile_names()[0], "[/red]\\u001b[31m"))
    told = run("simulate", str(trace), "--profile", str(mine), "--policy", "round-robin", "--processes", "1")
    assert "[/red]\\x1b[31m" in told


def test_sessions_of_a_snapshot(tmp_path: Path) -> None:
    sessions = [{"id": NAME, "weight_tokens": 5, "footprint_tokens": 3}]
    snapshot = {"replicas": [{"id": "[/bold]", "capacity_tokens": 9}], "sessions": sessions}
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(snapshot))
    told = run("plan", str(path))
    assert "[/bold]" in told
    assert "[/red]" in told
    assert "\x1b" not in told


def test_the_title_of_a_suite(tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(
        'name = "mine"\ntitle = "[/red]"\ndescription = "d"\npolicies = ["round-robin"]\nbaselines = []\nseeds = 1\n'
        '[[setting]]\nname = "s"\nprofile = "qwen3-32b-tp2-h100"\ntraces = ["x"]\nsessions = 2\nconcurrency = [2]\n'
    )
    assert run("evaluate", str(suite), "--out", str(tmp_path), "--processes", "1").startswith("[/red]")
