"""The checkers find what they are there for: logs written by hand, each with one thing wrong."""

from collections.abc import Sequence

import pytest

from tao.core import SchedulerSettings
from tao.core.commands import (
    AdmitSession,
    CloseSession,
    Closing,
    Command,
    DispatchTurn,
    Interruption,
    InterruptSession,
    Reason,
    Refusal,
    RefuseTurn,
    StopTurn,
)
from tao.core.events import (
    CapacityChanged,
    ClientLeft,
    Event,
    ReplicaJoined,
    ReplicaLost,
    SessionEnded,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnStopped,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.sim.capacity import AdmissionsFit
from tao.sim.checkers import Checker, NothingIsLeft, TurnsEndOnce, WaitsAreBounded

R = ReplicaId("r")
Step = tuple[Event, list[Command]]


def found(checker: Checker, steps: Sequence[Step]) -> list[str]:
    at = 0.0
    for event, commands in steps:
        checker(event, commands)
        at = event.at
    checker.end(at)
    return checker.violations


def arrived(at: float, turn: str, tokens: int = 100) -> TurnArrived:
    return TurnArrived(at, TurnId(turn), SessionId(turn[0]), tokens)


def sent(turn: str, hold: float = 0.0, attempt: int = 1) -> DispatchTurn:
    return DispatchTurn(TurnId(turn), SessionId(turn[0]), R, Reason.ROOM, hold, attempt)


def admitted(session: str, tokens: int, reason: Reason = Reason.ROOM) -> AdmitSession:
    return AdmitSession(SessionId(session), R, reason, tokens)


def finished(at: float, turn: str, tokens: int = 110) -> TurnFinished:
    return TurnFinished(at, TurnId(turn), Usage(tokens - 10, 10))


def refused(turn: str) -> RefuseTurn:
    return RefuseTurn(TurnId(turn), SessionId(turn[0]), Refusal.POOL_FULL)


def failed(at: float, turn: str, *, retryable: bool = False) -> TurnFailed:
    return TurnFailed(at, TurnId(turn), "broke", retryable)


GOOD_TURNS: dict[str, list[Step]] = {
    "finished": [(arrived(0, "a1"), [sent("a1")]), (finished(1, "a1"), [])],
    "told twice": [(arrived(0, "a1"), [sent("a1")]), (finished(1, "a1"), []), (finished(2, "a1"), [])],
    "retried": [
        (arrived(0, "a1"), [sent("a1")]),
        (failed(1, "a1", retryable=True), [sent("a1", attempt=2)]),
        (finished(2, "a1"), []),
    ],
    "refused after a failure": [
        (arrived(0, "a1"), [sent("a1")]),
        (failed(1, "a1", retryable=True), [refused("a1")]),
    ],
    "left while held": [(arrived(0, "a1"), []), (ClientLeft(1, TurnId("a1")), [])],
    "stopped": [
        (arrived(0, "a1"), [sent("a1")]),
        (ClientLeft(1, TurnId("a1")), [StopTurn(TurnId("a1"), R)]),
        (TurnStopped(2, TurnId("a1")), []),
    ],
}
BAD_TURNS: dict[str, tuple[list[Step], str]] = {
    "never ends": ([(arrived(0, "a1"), [sent("a1")])], "has not ended"),
    "held for ever": ([(arrived(0, "a1"), [])], "has not ended"),
    "dispatched twice": (
        [(arrived(0, "a1"), [sent("a1"), sent("a1")]), (finished(1, "a1"), [])],
        "not waiting",
    ),
    "dispatched after its end": (
        [(arrived(0, "a1"), [sent("a1")]), (finished(1, "a1"), []), (WakeUp(2), [sent("a1")])],
        "not waiting",
    ),
    "refused while it runs": (
        [(arrived(0, "a1"), [sent("a1")]), (WakeUp(1), [refused("a1")]), (finished(2, "a1"), [])],
        "refused although",
    ),
    "stopped while held": (
        [(arrived(0, "a1"), [StopTurn(TurnId("a1"), R)]), (WakeUp(1), [refused("a1")])],
        "no engine has it",
    ),
    "ended while held": ([(arrived(0, "a1"), []), (finished(1, "a1"), [])], "never dispatched"),
    "interrupted in a turn": (
        [
            (arrived(0, "a1"), [sent("a1")]),
            (WakeUp(1), [InterruptSession(SessionId("a"), R, Interruption.RULE)]),
            (finished(2, "a1"), []),
        ],
        "in the middle of a turn",
    ),
}


@pytest.mark.parametrize("steps", GOOD_TURNS.values(), ids=GOOD_TURNS)
def test_turns_that_end_once_are_fine(steps: list[Step]) -> None:
    assert found(TurnsEndOnce(), steps) == []


@pytest.mark.parametrize(("steps", "says"), BAD_TURNS.values(), ids=BAD_TURNS)
def test_turns_that_do_not_end_once_are_found(steps: list[Step], says: str) -> None:
    assert any(says in violation for violation in found(TurnsEndOnce(), steps))


UP: Step = (ReplicaJoined(0, R, 1_000), [])
SETTINGS = SchedulerSettings(hold_seconds_max=60.0, no_replica_seconds_max=30.0)


def test_a_hold_within_the_bound_is_fine_and_one_beyond_it_is_found() -> None:
    held = [UP, (arrived(0, "a1"), [])]
    assert found(WaitsAreBounded(SETTINGS), [*held, (WakeUp(60), [sent("a1", 60)])]) == []
    assert found(WaitsAreBounded(SETTINGS), [*held, (WakeUp(61), [])])
    assert found(WaitsAreBounded(SETTINGS), [*held, (WakeUp(20), [sent("a1", 5)])])  # told a shorter hold


def test_with_no_replica_up_a_hold_may_last_longer() -> None:
    steps: list[Step] = [UP, (arrived(0, "a1"), []), (ReplicaLost(59, R), [])]
    assert found(WaitsAreBounded(SETTINGS), [*steps, (WakeUp(89), [refused("a1")])]) == []
    assert found(WaitsAreBounded(SETTINGS), [*steps, (WakeUp(91), [])])


def test_a_session_that_is_never_closed_is_found() -> None:
    steps: list[Step] = [(arrived(0, "a1"), [admitted("a", 100), sent("a1")]), (finished(1, "a1"), [])]
    ended: Step = (SessionEnded(2, SessionId("a")), [CloseSession(SessionId("a"), Closing.ENDED)])
    assert found(NothingIsLeft(), [*steps, ended]) == []
    assert "never closed" in found(NothingIsLeft(), steps)[0]


def test_an_admission_beside_running_turns_has_to_fit() -> None:
    steps: list[Step] = [UP, (arrived(0, "a1", 700), [admitted("a", 700), sent("a1")])]
    assert found(AdmissionsFit(), [*steps, (arrived(1, "b1", 300), [admitted("b", 300), sent("b1")])]) == []
    over: Step = (arrived(1, "b1", 301), [admitted("b", 301), sent("b1")])
    assert "exceeds r by 1 tokens" in found(AdmissionsFit(), [*steps, over])[0]
    forced: Step = (arrived(1, "b1", 301), [admitted("b", 301, Reason.FORCED), sent("b1")])
    assert found(AdmissionsFit(), [*steps, forced]) == []


def test_a_smaller_capacity_counts_from_when_it_is_told() -> None:
    steps: list[Step] = [
        UP,
        (CapacityChanged(1, R, 500), []),
        (arrived(1, "a1", 501), [admitted("a", 501), sent("a1")]),
    ]
    assert found(AdmissionsFit(), steps)


ACTING: list[Step] = [
    UP,
    (arrived(0, "a1", 600), [admitted("a", 600), sent("a1")]),
    (finished(1, "a1", 700), []),
    (arrived(2, "b1", 400), [admitted("b", 400), sent("b1")]),
]


def test_an_admission_beside_a_tool_is_checked_once_it_is_known_that_its_session_held_on() -> None:
    assert found(AdmissionsFit(), ACTING) == []  # it may have given its admission back
    back: Step = (arrived(3, "a2", 750), [sent("a2")])
    assert "exceeds r by 100 tokens" in found(AdmissionsFit(), [*ACTING, back])[0]
    interrupted: Step = (WakeUp(3), [InterruptSession(SessionId("a"), R, Interruption.RULE)])
    assert found(AdmissionsFit(), [*ACTING, interrupted])


def test_a_session_that_had_given_its_admission_back_is_no_fault() -> None:
    anew: Step = (arrived(3, "a2", 550), [admitted("a", 550), sent("a2")])
    assert found(AdmissionsFit(), [*ACTING, anew]) == []
    assert found(AdmissionsFit(), [*ACTING, (arrived(3, "a2", 750), [])]) == []  # held: it has none


def test_tokens_that_a_session_shares_with_others_are_not_counted_against_it() -> None:
    steps: list[Step] = [
        UP,
        (arrived(0, "a1", 900), [admitted("a", 500), sent("a1")]),
        (arrived(1, "b1", 900), [admitted("b", 500), sent("b1")]),
    ]
    assert found(AdmissionsFit(), steps) == []


def test_books_stay_right_over_many_admissions() -> None:
    checker = AdmissionsFit()
    checker(*UP)
    checker(arrived(0, "k1", 200), [admitted("k", 200), sent("k1")])
    checker(finished(0, "k1", 200), [])
    for n in range(1_000):
        checker(arrived(n, "a1", 300), [admitted("a", 300), sent("a1")])
        checker(finished(n, "a1", 300), [])
        checker(SessionEnded(n, SessionId("a")), [CloseSession(SessionId("a"), Closing.ENDED)])
    assert checker.violations == []
    checker(arrived(1_000, "b1", 900), [admitted("b", 900), sent("b1")])
    assert checker.violations == []
    checker(arrived(1_001, "k2", 250), [sent("k2")])  # k was there all the time
    assert len(checker.violations) == 1
