"""Several models behind one scheduler: who may go where, what a wait is bounded by, and what another model means."""

import pytest
from core_kit import World, of_kind
from watched import Watched

from tao.core import SchedulerSettings
from tao.core.commands import (
    DispatchTurn,
    Interruption,
    InterruptSession,
    Reason,
    Refusal,
    RefuseTurn,
)
from tao.core.events import ModelsChanged
from tao.core.ids import ReplicaId
from tao.core.phases import Running, Waiting
from tao.policies import POLICIES, make_policy

BOUNDS = SchedulerSettings(hold_seconds_max=100.0, no_replica_seconds_max=10.0)


def two_pools(policy: str = "tao", capacity_tokens: int = 4_000) -> World:
    """Replica x serves the model x, y the model y."""
    w = World(make_policy(policy), BOUNDS)
    w.join("x", capacity_tokens, ("x",))
    w.join("y", capacity_tokens, ("y", "z"))
    return w


def went(w: World, turn: str) -> str:
    [dispatch] = [command for command in of_kind(w.log, DispatchTurn) if command.turn == turn]
    return dispatch.replica


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_sends_a_session_where_its_model_is_served(policy: str) -> None:
    """Also those that wait, past the room of both replicas."""
    w = two_pools(policy)
    turns: dict[str, str] = {}
    for number in range(12):
        model = "xyz"[number % 3]
        turns[f"t{number}"] = model
        w.after(0.1).arrive(f"s{number}", f"t{number}", 1_500, model=model)
    for _ in range(200):
        for dispatch in of_kind(w.log, DispatchTurn):
            if dispatch.turn in w.scheduler.view.turns:
                w.finish(dispatch.turn, 1_500, 10, tools=())
        w.run_for(1.0)
        if not w.scheduler.view.turns:
            break
    assert not w.scheduler.view.turns, "nobody starves behind another model's sessions"
    assert {turn: went(w, turn) for turn in turns} == {
        turn: "x" if model == "x" else "y" for turn, model in turns.items()
    }


def test_a_session_is_placed_at_once_where_only_those_of_another_model_wait() -> None:
    w = two_pools()
    w.arrive("a", "a1", 3_400, model="x")
    w.arrive("b", "b1", 3_400, model="x")  # waits
    [dispatch] = of_kind(w.arrive("c", "c1", 1_000, model="y"), DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("y", Reason.ROOM)
    assert of_kind(w.arrive("d", "d1", 1_000, model="x"), DispatchTurn) == [], "behind its own kind"
    assert of_kind(w.arrive("e", "e1", 1_000), DispatchTurn) == [], (
        "it may go anywhere, so it waits with the others"
    )


def test_a_full_pool_does_not_keep_the_other_one_waiting() -> None:
    w = two_pools("session-fcfs")
    w.arrive("a", "a1", 3_500, model="x")
    w.arrive("b", "b1", 3_500, model="x")  # waits
    w.arrive("c", "c1", 3_500, model="y")  # behind it
    w.run_for(2.0)
    assert isinstance(w.session("b").phase, Waiting)
    assert isinstance(w.session("c").phase, Running)


def test_a_model_that_nobody_up_serves_is_waited_for_and_then_refused() -> None:
    w = two_pools()
    w.lose("y")
    assert of_kind(w.arrive("s", "s1", model="y"), DispatchTurn) == []
    w.arrive("t", "t1", model="x")
    w.run_for(0.1)
    assert went(w, "t1") == "x"
    assert "no replica that serves 'y' is up" in str(w.scheduler.explain(w.session("s").id))
    w.run_for(9.8)
    assert of_kind(w.log, RefuseTurn) == []
    w.run_for(0.2)
    [refused] = of_kind(w.log, RefuseTurn)
    assert (refused.turn, refused.cause) == ("s1", Refusal.NO_REPLICA)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_turn_beside_one_on_the_engine_goes_there_where_nobody_serves_its_model(policy: str) -> None:
    """Policies are asked only of sessions that somebody serves, and the engine is the one to refuse this turn."""
    w = World(Watched(make_policy(policy)), BOUNDS)
    w.join("y", 4_000, ("y",))
    w.arrive("s", "s1", model="y")
    [dispatch] = of_kind(w.after(0.1).arrive("s", "s2", model="x"), DispatchTurn)
    assert (dispatch.turn, dispatch.replica) == ("s2", "y")


def test_the_bound_counts_from_when_the_last_server_was_lost() -> None:
    w = two_pools()
    w.arrive("a", "a1", 3_400, model="y")
    w.arrive("s", "s1", 3_400, model="y")  # waits for room
    w.run_for(50.0)
    w.lose("y")
    w.run_for(9.0)
    assert of_kind(w.log, RefuseTurn) == []
    w.join("late", 4_000, ("y",))
    w.run_for(1.0)
    assert went(w, "s1") == "late"


def test_a_session_that_asks_for_another_model_moves_and_starts_afresh() -> None:
    w = two_pools()
    w.arrive("s", "s1", 1_000, model="x")
    w.finish("s1", 1_000, 100)
    assert list(w.session("s").evidence) == ["x"]
    commands = w.arrive("s", "s2", 1_200, model="y")
    [interrupt] = of_kind(commands, InterruptSession)
    assert (interrupt.replica, interrupt.reason) == ("x", Interruption.MODEL)
    w.run_for(1.0)
    assert went(w, "s2") == "y"
    assert w.session("s").evidence == {}
    assert w.reserved("x") == 0
    w.finish("s2", 1_200, 10)
    w.arrive("s", "s3", 1_300)  # it names none: as before
    assert went(w, "s3") == "y"


def test_a_parallel_turn_for_another_model_goes_where_that_is_served() -> None:
    w = two_pools()
    w.arrive("s", "s1", 1_000, model="x")
    [dispatch] = of_kind(w.arrive("s", "s2", 1_000, model="y"), DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("y", Reason.MODEL)
    w.finish("s1")
    w.finish("s2")


def test_turns_held_together_go_where_each_is_served() -> None:
    w = two_pools()
    w.arrive("a", "a1", 3_400, model="x")
    w.arrive("b", "b1", 3_400, model="y")
    w.arrive("s", "s1", 1_000, model="x")
    w.arrive("s", "s2", 1_000, model="y")
    w.finish("a1", 3_400, 0)
    w.finish("b1", 3_400, 0)
    w.end("a")
    w.end("b")
    w.run_for(2.0)
    assert (went(w, "s1"), went(w, "s2")) == ("x", "y")


def test_an_engine_that_no_longer_serves_a_model_loses_its_sessions() -> None:
    w = two_pools()
    w.arrive("s", "s1", 1_000, model="z")
    w.finish("s1", 1_000, 100)
    [interrupt] = of_kind(w.send(ModelsChanged(w.at, ReplicaId("y"), ("y",))), InterruptSession)
    assert (interrupt.session, interrupt.reason) == ("s", Interruption.MODEL)
    w.arrive("s", "s2", 1_200, model="z")
    w.run_for(1.0)
    assert isinstance(w.session("s").phase, Waiting)
    w.send(ModelsChanged(w.at, ReplicaId("x"), ("x", "z")))
    w.run_for(1.0)
    assert went(w, "s2") == "x"


def test_an_engine_that_changes_its_models_keeps_the_sessions_that_it_serves_still() -> None:
    w = two_pools()
    for session, model in (("s", "y"), ("t", "z"), ("u", "y")):
        w.arrive(session, f"{session}1", 500, model=model)
        w.finish(f"{session}1", 500, 100)
    interrupts = of_kind(w.send(ModelsChanged(w.at, ReplicaId("y"), ("y",))), InterruptSession)
    assert [interrupt.session for interrupt in interrupts] == ["t"]
    assert [w.session(session).home for session in ("s", "t", "u")] == ["y", None, "y"]


def test_a_replica_that_names_no_models_serves_whatever_is_asked() -> None:
    w = two_pools()
    w.join("any", 4_000)
    w.arrive("s", "s1", model="something else")
    assert went(w, "s1") == "any"
    w.lose("any")
    w.arrive("t", "t1", model="something else")
    w.run_for(10.1)
    assert [refused.turn for refused in of_kind(w.log, RefuseTurn)] == ["t1"]


def test_too_large_for_its_own_pool_goes_to_the_engine_of_that_pool() -> None:
    w = two_pools()
    w.join("large", 100_000, ("w",))
    w.arrive("s", "s1", 50_000, model="x")
    assert went(w, "s1") == "x"


def test_a_retry_goes_to_one_that_serves_the_model() -> None:
    w = two_pools()
    w.arrive("s", "s1", model="x")
    assert [r.cause for r in of_kind(w.fail("s1", retryable=True), RefuseTurn)] == [Refusal.REPLICA_FAILED]
    w.join("x2", 4_000, ("x",))
    w.arrive("t", "t1", model="x")
    first = went(w, "t1")
    [again] = of_kind(w.fail("t1", retryable=True), DispatchTurn)
    assert {first, again.replica} == {"x", "x2"}
