"""The shell reader: what surely sleeps, what bounds it, what runs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.traces.shell import read_command

SLEEPS = [
    ("sleep 5", 5.0),
    ("sleep 0.5s", 0.5),
    ("sleep 2m", 120.0),
    ("sleep .5", 0.5),
    ("/bin/sleep 3", 3.0),
    ("sleep 1 2", 3.0),
    ("sleep 1 && echo x", 1.0),
    ("cd /repo && sleep 7", 7.0),
    ("sleep 1; sleep 2", 3.0),
    ("bash -lc 'sleep 4 && ls'", 4.0),
    ('bash -c "cd x && sleep 30"', 30.0),
    ("timeout 10 sleep 60", 10.0),
    ("timeout 5 bash -c 'sleep 60'", 5.0),
    ("sudo sleep 2", 2.0),
    ("FOO=1 sleep 2", 2.0),
    ("(sleep 3)", 3.0),
    ("if true; then x; fi; sleep 4", 4.0),
    ("cat <<EOF\nsleep 9\nEOF\nsleep 1", 1.0),
    ("sleep 5 # then more", 5.0),
    ("sleep 3 > out.log 2>&1", 3.0),
    ("sleep 1 \\\n && sleep 1", 2.0),
    ("'sleep' 2", 2.0),
]
NO_SLEEPS = [
    "for i in 1 2 3; do sleep 1; done",
    "while true; do sleep 5; done",
    "until curl x; do sleep 5; done",
    "if x; then sleep 5; fi",
    "# sleep 5",
    "echo 'sleep 5'",
    'echo "sleep 5"',
    "echo sleep 5",
    "true || sleep 5",
    "sleep 5 &",
    "sleep $N",
    "sleep infinity",
    "sleep $(cat n)",
    "sleep",
    "sleep -1",
    "sleep 1e9",
    "f() { sleep 5; }",
    "cat <<'EOF' > x.sh\nsleep 9\nEOF",
    "python -c 'import time; time.sleep(5)'",
    "grep -rn 'sleep 5' .",
    "",
    "nosleep 5",
]


@pytest.mark.parametrize(("command", "seconds"), SLEEPS)
def test_literal_sleeps(command: str, seconds: float) -> None:
    assert read_command(command).sleep_seconds == seconds


@pytest.mark.parametrize("command", NO_SLEEPS)
def test_what_may_not_sleep_is_not_counted(command: str) -> None:
    assert read_command(command).sleep_seconds is None


@pytest.mark.parametrize(
    ("command", "head"),
    [
        ("cd /repo && pytest -q", "pytest"),
        ("export A=1; B=2 /usr/bin/python3 x.py", "python3"),
        ("bash -lc 'cd /r && make test'", "make"),
        ("timeout 600 cargo build", "cargo"),
        ("sudo -u me env X=1 ls", "ls"),
        ("for f in *.py; do cat $f; done", "cat"),
        ("cd /only", "cd"),
        ("git status | head", "git"),
        ("", None),
        ("   \n", None),
    ],
)
def test_the_program_that_does_the_work(command: str, head: str | None) -> None:
    assert read_command(command).head == head


def test_the_time_out_counts_where_it_bounds_the_whole_line() -> None:
    assert read_command("cd x && timeout 30s make").timeout_seconds == 30
    assert read_command("timeout 30 make; make more").timeout_seconds is None
    assert read_command("grep timeout 5").timeout_seconds is None


def test_background_only_where_the_last_command_is() -> None:
    assert read_command("python -m http.server &").background
    assert read_command("nohup ./serve > log 2>&1 &\n").background
    assert not read_command("./serve & sleep 2").background
    assert not read_command("a && b").background


SYNTAX = "sleep|5| |'|\"|\\|$(|)|(|&&|;|&|\n|<<EOF|EOF|#|bash -c |`|for|do|done|timeout|-|<|>|2>|{|}|cd|\r"
words = st.sampled_from([*SYNTAX.split("|"), "||", "|"])


@given(st.lists(words | st.text(max_size=5), max_size=60))
def test_no_input_raises(parts: list[str]) -> None:
    timing = read_command("".join(parts))
    assert timing.sleep_seconds is None or timing.sleep_seconds >= 0
    assert timing.head is None or 0 < len(timing.head) <= 64


@pytest.mark.parametrize(
    "unit",
    [
        "'",
        '"',
        '\\"',
        "$(",
        "(",
        "<<E ",
        "<<",
        "`",
        "bash -c '",
        "a|",
        "#",
        "timeout 1 ",
        "9",
        " \\",
        "\n<<E\n",
        "{;",
    ],
)
def test_time_is_linear(unit: str) -> None:
    command = unit * (16_384 // len(unit))
    started = time.process_time()
    read_command(command)
    assert time.process_time() - started < 0.5
