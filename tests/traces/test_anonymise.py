"""What is kept of names and commands that people wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.traces.anonymise import COMMAND_HEADS, command_head, hashed_id, sleep_seconds, tool_name


@pytest.mark.parametrize(
    ("command", "head"),
    [
        ("ls -la", "ls"),
        ("cd /private && pytest -q", "pytest"),
        ("FOO=bar BAR=1 go test ./...", "go"),
        ("timeout -k 5 300 make all", "make"),
        ("sudo /usr/bin/git status", "git"),
        ("./private.sh --now", "other"),
        ("export A=1\nsource venv/bin/activate; python x.py | tail", "python"),
        ("cd /private", None),
        ("", None),
    ],
)
def test_the_first_known_program_is_kept(command: str, head: str | None) -> None:
    assert command_head(command) == head


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("sleep 5", 5.0),
        ("make & sleep 0.5; sleep 2m && ls", 120.5),
        ("echo sleep 5", None),
        ("sleep $N", None),
        ("nosleep 4", None),
    ],
)
def test_literal_sleeps_are_summed(command: str, seconds: float | None) -> None:
    assert sleep_seconds(command) == seconds


def test_tools_of_the_user_are_not_named() -> None:
    assert [tool_name(n) for n in ("Bash", "mcp__private__x", "Private", "AskUserQuestion")] == [
        "Bash",
        "mcp",
        "other",
        "user_wait",
    ]


def test_ids_are_stable_and_tell_their_parts_apart() -> None:
    assert hashed_id("claude", "a", "b") == hashed_id("claude", "a", "b")
    assert hashed_id("claude", "a", "b") != hashed_id("claude", "ab")
    assert "private" not in hashed_id("codex", "private")


@given(st.text(max_size=300))
def test_nothing_but_a_known_word_comes_out(command: str) -> None:
    head = command_head(command)
    assert head is None or head == "other" or head in COMMAND_HEADS
    seconds = sleep_seconds(command)
    assert seconds is None or seconds >= 0
