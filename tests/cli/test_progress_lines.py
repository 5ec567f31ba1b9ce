"""How far a sweep is, told in lines where no terminal is: each tenth once, with what is left of the time."""

import pytest

from tao.cli.runs import ProgressLines


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_each_tenth_is_told_once_with_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = ProgressLines(1_000, clock)
    for seconds, ended in ((120.0, (50, 40)), (240.0, (150, 50)), (250.0, (150, 55)), (600.0, (500, 0))):
        clock.seconds = seconds
        lines(ended)
    assert capsys.readouterr().err.splitlines() == [
        "20 % of about 1,000 turns after 4.0 min; about 16 min to go",
        "50 % of about 1,000 turns after 10.0 min; about 10 min to go",
    ]


def test_what_takes_seconds_is_not_commented_on(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = ProgressLines(1_000, clock)
    clock.seconds = 59.0
    lines((1_000,))
    lines((1_200,))
    assert capsys.readouterr().err == ""
