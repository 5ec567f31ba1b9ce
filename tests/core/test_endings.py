"""Ways in which a turn and a session end: retries, clients that leave, sessions that are released, late events."""

import pytest
from core_kit import World, of_kind

from tao.core import SchedulerSettings
from tao.core.commands import (
    AdmitSession,
    CloseSession,
    Closing,
    DispatchTurn,
    Reason,
    Refusal,
    RefuseTurn,
    StopTurn,
)
from tao.core.phases import Acting, Away, Running, Stopping, Waiting
from tao.policies import make_policy

RESERVE = 512


@pytest.fixture
def w() -> World:
    return World(make_policy("tao"), a=100_000, b=100_000)


# --- retry -------------------------------------------------------------------------------------------------------------


def test_a_turn_that_failed_before_it_answered_gets_one_try_elsewhere(w: World) -> None:
    w.arrive("s", "t1")
    [admit, dispatch] = w.after(2).fail("t1", retryable=True)
    assert isinstance(admit, AdmitSession)
    assert (admit.replica, admit.reason) == ("b", Reason.RETRY)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason, dispatch.attempt) == ("b", Reason.RETRY, 2)
    assert dispatch.hold_seconds == 0  # it was not held, it ran
    assert (w.reserved("a"), w.reserved("b")) == (0, 1_512)
    refuse, *_ = w.fail("t1", retryable=True)
    assert refuse == RefuseTurn("t1", "s", Refusal.REPLICA_FAILED)  # type: ignore[arg-type]
    assert w.reserved("b") == 0


def test_the_second_attempt_starts_its_count_afresh(w: World) -> None:
    w.arrive("s", "t1")
    w.first_token("t1")
    w.progress("t1", 40)
    w.fail("t1", retryable=True)
    assert (w.reserved("a"), w.reserved("b")) == (0, 1_000 + RESERVE)
    w.first_token("t1")
    w.progress("t1", 8)
    assert w.ignored == {}
    assert w.reserved("b") == 1_008 + RESERVE


def test_a_retry_beside_other_turns_leaves_the_admission_where_it_is(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 2_000)
    w.progress("t1", 300)
    assert not of_kind(w.fail("t1", retryable=True), AdmitSession)
    assert (w.reserved("a"), w.reserved("b")) == ((2_000 + RESERVE) + 2_000, 1_000)
    w.finish("t1")
    w.finish("t2", 2_000, 100)
    assert (w.reserved("a"), w.reserved("b")) == (2_100 + RESERVE, 0)


def test_a_retry_that_comes_home_finds_the_admission_there(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.drain("a")
    [away] = of_kind(w.arrive("s", "t2", 2_000), DispatchTurn)
    assert (away.replica, away.reason) == ("b", Reason.FORCED)  # beside its home, which takes nothing
    w.join("a", 100_000)
    w.finish("t1")
    [dispatch] = w.fail("t2", retryable=True)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.RETRY)
    assert (w.reserved("a"), w.reserved("b")) == (
        2_000 + RESERVE,
        0,
    )  # covered by the admission, not beside it


def test_with_one_replica_there_is_no_second_try() -> None:
    w = World(make_policy("tao"), a=100_000)
    w.arrive("s", "t1")
    refuse, *_ = w.fail("t1", retryable=True)
    assert refuse == RefuseTurn("t1", "s", Refusal.REPLICA_FAILED)  # type: ignore[arg-type]


def test_what_was_sent_already_is_not_tried_again(w: World) -> None:
    w.arrive("s", "t1")
    assert w.fail("t1") == []


def test_a_session_whose_turn_failed_is_away_and_holds_nothing(w: World) -> None:
    w.arrive("s", "t1")
    w.finish("t1", 1_000, 100)
    w.arrive("s", "t2", 1_200)
    w.fail("t2")
    assert isinstance(w.session("s").phase, Away)
    assert w.reserved("a") == 0
    assert not w.scheduler.view.pool
    [admit, _] = w.after(3).arrive("s", "t3", 1_200)
    assert isinstance(admit, AdmitSession)
    assert (admit.replica, admit.weight_tokens) == ("a", 1_200 + RESERVE)  # where its cache lives


def test_a_turn_that_was_asked_to_stop_is_not_tried_again(w: World) -> None:
    w.arrive("s", "t1")
    w.leave("t1")
    assert w.fail("t1", retryable=True) == []


def test_a_retry_off_a_removed_replica_lets_it_be_forgotten(w: World) -> None:
    w.arrive("s", "t1")
    w.remove("a")
    assert "a" in w.scheduler.view.replicas
    assert of_kind(w.fail("t1", retryable=True), DispatchTurn)
    assert "a" not in w.scheduler.view.replicas


# --- the client leaves -------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_while_held_is_gone_at_once() -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("s", "t1", 2_000)
    [close] = w.leave("t1")
    assert close == CloseSession("s", Closing.CLIENT_LEFT)  # type: ignore[arg-type]
    assert w.scheduler.view.held_turns == 0
    assert w.leave("t1") == []
    assert w.ignored == {"ClientLeft": 1}


@pytest.mark.parametrize("streaming", [False, True], ids=["prefilling", "streaming"])
def test_a_client_that_leaves_a_dispatched_turn_frees_it_when_the_engine_confirms(
    w: World, streaming: bool
) -> None:
    w.arrive("s", "t1")
    if streaming:
        w.first_token("t1")
        w.progress("t1", 64)
    booked = w.reserved("a")
    [stop] = w.leave("t1")
    assert stop == StopTurn("t1", "a")  # type: ignore[arg-type]
    assert isinstance(w.session("s").phase, Stopping)
    assert w.reserved("a") == booked  # the engine works on it still
    assert w.leave("t1") == []
    w.stopped("t1")
    assert isinstance(w.session("s").phase, Away)
    assert w.reserved("a") == 0
    assert bool(w.session("s").evidence) == streaming  # its prompt is in the cache
    w.stopped("t1")
    assert w.ignored == {"ClientLeft": 1, "TurnStopped": 1}


def test_one_of_two_clients_leaves(w: World) -> None:
    w.arrive("s", "t1")
    w.arrive("s", "t2")
    w.leave("t1")
    assert isinstance(w.session("s").phase, Running)
    assert w.leave("t1") == []
    w.leave("t2")
    assert isinstance(w.session("s").phase, Stopping)
    w.finish("t1")  # it was faster than the stop
    w.stopped("t2")
    assert isinstance(w.session("s").phase, Away)


def test_a_new_turn_takes_a_stopping_session_up_again(w: World) -> None:
    w.arrive("s", "t1")
    w.leave("t1")
    [dispatch] = w.arrive("s", "t2")
    assert isinstance(dispatch, DispatchTurn)
    assert isinstance(w.session("s").phase, Running)
    w.stopped("t1")
    w.finish("t2")
    assert w.reserved("a") == 1_100 + RESERVE


def test_a_known_session_whose_client_leaves_while_held_stays_known() -> None:
    w = World(make_policy("tao"), a=100_000)
    w.arrive("s", "t1")
    w.finish("t1")
    w.lose("a")
    w.arrive("s", "t2")
    w.after(3).leave("t2")
    assert w.session("s").phase == Away(3.0)
    w.after(1).tool_finished("s")
    assert w.session("s").phase == Away(3.0)  # nothing is known to run: a late event
    w.tool_expected("s", 5)
    assert w.ignored == {"ToolFinished": 1, "ToolExpected": 1}


# --- the session is released -------------------------------------------------------------------------------------------


def test_release_while_held_turns_the_clients_away() -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 1_000)
    assert w.end("s") == [
        RefuseTurn("t1", "s", Refusal.SESSION_ENDED),  # type: ignore[arg-type]
        RefuseTurn("t2", "s", Refusal.SESSION_ENDED),  # type: ignore[arg-type]
        CloseSession("s", Closing.ENDED),  # type: ignore[arg-type]
    ]


def test_release_while_running_takes_effect_when_the_last_turn_has_ended(w: World) -> None:
    w.arrive("s", "t1")
    w.arrive("s", "t2")
    assert w.end("s") == []
    assert w.finish("t1") == []
    assert w.finish("t2") == [CloseSession("s", Closing.ENDED)]  # type: ignore[arg-type]
    assert w.reserved("a") == 0


def test_release_while_stopping(w: World) -> None:
    w.arrive("s", "t1")
    w.leave("t1")
    assert w.end("s") == []
    assert w.stopped("t1") == [CloseSession("s", Closing.ENDED)]  # type: ignore[arg-type]


def test_release_while_acting(w: World) -> None:
    w.arrive("s", "t1")
    w.finish("t1")
    assert w.end("s") == [CloseSession("s", Closing.ENDED)]  # type: ignore[arg-type]
    assert w.end("s") == []
    assert w.ignored == {"SessionEnded": 1}


def test_a_released_session_that_sends_another_turn_goes_on(w: World) -> None:
    w.arrive("s", "t1")
    w.end("s")
    w.arrive("s", "t2")
    w.finish("t1")
    w.finish("t2")
    assert w.knows("s")


# --- duplicates and late events ----------------------------------------------------------------------------------------


def test_a_turn_that_arrives_twice_is_one_turn(w: World) -> None:
    w.arrive("s", "t1")
    assert w.arrive("s", "t1") == []
    assert w.arrive("r", "t1") == []
    assert w.ignored == {"TurnArrived": 2}
    assert w.reserved("a") == 1_512


def test_a_second_first_token_is_late(w: World) -> None:
    w.arrive("s", "t1")
    w.after(1).first_token("t1")
    w.after(1).first_token("t1")
    assert w.ignored == {"FirstToken": 1}
    assert next(iter(w.scheduler.view.turns.values())).first_token_at == 1.0


def test_a_tool_that_ends_twice_ended_the_first_time(w: World) -> None:
    w.arrive("s", "t1")
    w.finish("t1")
    w.after(1).tool_finished("s")
    w.after(1).tool_finished("s")
    assert w.ignored == {"ToolFinished": 1}
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert phase.finished_at == 1.0


def test_what_the_tool_interface_tells_is_kept_with_its_time(w: World) -> None:
    w.arrive("s", "t1")
    w.finish("t1")
    w.after(3).tool_expected("s", 20)
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert (phase.expected_at, phase.told_at, phase.since, phase.home) == (23.0, 3.0, 0.0, "a")


def test_an_event_from_the_past_happens_now(w: World) -> None:
    w.after(10).arrive("s", "t1")
    w.at = 4.0
    w.first_token("t1")
    assert next(iter(w.scheduler.view.turns.values())).first_token_at == 10.0


def test_a_held_turn_meets_no_event_of_the_engine() -> None:
    w = World(make_policy("tao"), SchedulerSettings())
    w.arrive("s", "t1")
    w.finish("t1")
    w.stopped("t1")
    w.fail("t1", retryable=True)
    assert isinstance(w.session("s").phase, Waiting)
    assert w.ignored == {"TurnFinished": 1, "TurnStopped": 1, "TurnFailed": 1}
