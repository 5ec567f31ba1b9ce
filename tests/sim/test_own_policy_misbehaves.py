"""A policy of one's own that raises, ends the program, dies or answers nonsense breaks off its run, and is named."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli import main
from tao.core.commands import Reason
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import Decision, Hold, Place, View
from tao.core.session import Session, Turn
from tao.policies.baselines.session_fcfs import SessionFcfs


class Mine(SessionFcfs):
    """Sound, and the frame of all below."""

    name = "mine"


class Raises(Mine):
    def decide(self, view: View, at: float) -> Decision:
        raise KeyError("boom")


class RaisesWhatBadInputRaises(Mine):
    def decide(self, view: View, at: float) -> Decision:
        raise ValueError("no such thing")


class EndsTheProgram(Mine):
    def decide(self, view: View, at: float) -> Decision:
        sys.exit(0)


class Dies(Mine):
    def decide(self, view: View, at: float) -> Decision:
        os._exit(0)


class PlacesNowhere(Mine):
    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return Place(ReplicaId("mars"), Reason.ROOM)


class SaysNothing(Mine):
    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return None  # type: ignore[return-value]


class WeighsLessThanNothing(Mine):
    def weight_tokens(self, session: Session) -> int:
        return -session.footprint_tokens


class WeighsNoNumber(Mine):
    def weight_tokens(self, session: Session) -> int:
        return float("nan")  # type: ignore[return-value]


class WeighsFractions(Mine):
    def weight_tokens(self, session: Session) -> int:
        return session.footprint_tokens * 1.5  # type: ignore[return-value]


class DecidesOnNobody(Mine):
    def decide(self, view: View, at: float) -> Decision:
        return Decision([(SessionId("nobody"), ReplicaId("replica-0"))])


class DecidesOnAllTheTime(Mine):
    def next_planning_at(self, view: View, at: float) -> float | None:
        return at


class DecidesWhenNoNumberSays(Mine):
    def next_planning_at(self, view: View, at: float) -> float | None:
        return float("nan")


class InterruptsWhoRuns(Mine):
    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        return list(view.sessions)


def simulate(name: str, processes: str = "1") -> Result:
    load = ("--sessions", "8", "--kv-tokens", "30000", "--replicas", "2", "--concurrency", "8")
    policies = f"{__name__}:{name},round-robin"
    return CliRunner().invoke(main, ["simulate", *load, "--policy", policies, "--processes", processes])


def test_the_frame_is_sound() -> None:
    assert simulate("Mine").exit_code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "KeyError: 'boom' (in decide, "),
        ("RaisesWhatBadInputRaises", "ValueError: no such thing (in decide, "),
        ("EndsTheProgram", "SystemExit: 0 (in decide, "),
        ("PlacesNowhere", "KeyError: 'mars'"),
        (
            "SaysNothing",
            "seed 0: policy mine: place answered None (NoneType); it must be a Place or a Hold\n",
        ),
        ("WeighsLessThanNothing", "seed 0: policy mine: weight_tokens answered -"),
        ("WeighsNoNumber", "weight_tokens answered nan (float); it must be an int of at least 0\n"),
        ("WeighsFractions", "(float); it must be an int of at least 0\n"),
        ("DecidesOnNobody", "KeyError: 'nobody'"),
        ("DecidesOnAllTheTime", "time does not move: the policy asks for more"),
        ("DecidesWhenNoNumberSays", "must be finite, not nan"),
        ("InterruptsWhoRuns", "AssertionError"),
    ],
)
def test_it_breaks_off_the_run_and_says_where(name: str, message: str) -> None:
    result = simulate(name)
    assert result.exit_code == 1
    assert f"Error: a run broke off: {__name__}:{name}, " in result.stderr
    assert message in result.stderr
    assert "\nTo repeat: tao " in result.stderr
    if "(in decide" in message:
        assert f"(in decide, {Path(__file__)}:" in result.stderr


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    result = simulate("Dies", processes="2")
    assert result.exit_code == 1
    assert "Error: a process ended in the middle of its work" in result.stderr
