"""Shutting down: no new turns, held ones get an answer, running ones finish."""

from core_kit import World, of_kind

from tao.core.commands import CloseSession, Closing, Refusal, RefuseTurn
from tao.core.events import ShutdownStarted
from tao.core.phases import Acting
from tao.policies import make_policy


def test_held_turns_are_answered_new_ones_refused_running_ones_finish() -> None:
    w = World(make_policy("tao"), a=10_000, b=1_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "t1")
    commands = w.send(ShutdownStarted(w.at))
    assert commands == [
        RefuseTurn("t1", "s", Refusal.SHUTTING_DOWN),  # type: ignore[arg-type]
        CloseSession("s", Closing.REFUSED),  # type: ignore[arg-type]
    ]
    assert w.arrive("r", "u1") == [RefuseTurn("u1", "r", Refusal.SHUTTING_DOWN)]  # type: ignore[arg-type]
    w.finish("x1")
    assert isinstance(w.session("x").phase, Acting)
    assert w.scheduler.snapshot()["shutting_down"] is True


def test_no_second_try_while_shutting_down() -> None:
    w = World(make_policy("tao"), a=10_000, b=10_000)
    w.arrive("s", "t1")
    w.send(ShutdownStarted(w.at))
    [refuse] = of_kind(w.fail("t1", retryable=True), RefuseTurn)
    assert refuse.cause is Refusal.REPLICA_FAILED


def test_a_known_session_with_a_held_turn_stays_known() -> None:
    w = World(make_policy("tao"), a=10_000)
    w.arrive("s", "t1")
    w.finish("t1")
    w.lose("a")
    w.arrive("s", "t2")
    assert w.send(ShutdownStarted(w.at)) == [RefuseTurn("t2", "s", Refusal.SHUTTING_DOWN)]  # type: ignore[arg-type]
    assert w.knows("s")
