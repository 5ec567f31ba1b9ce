"""The engines get other weights: nothing is dispatched meanwhile, and afterwards no cache counts."""

from collections.abc import Callable

import pytest
from core_kit import World, of_kind

from tao.core import SchedulerSettings
from tao.core.commands import (
    Command,
    ComputePlan,
    DispatchTurn,
    Interruption,
    InterruptSession,
    Reason,
    RefuseTurn,
)
from tao.core.events import EventError, ModelsChanged, WeightsUpdateBegan, WeightsUpdateEnded
from tao.core.ids import ReplicaId, TurnId
from tao.core.phases import Acting, Away, Running, Waiting
from tao.policies import POLICIES, make_policy

BOUNDS = SchedulerSettings(hold_seconds_max=20.0, no_replica_seconds_max=10.0)


@pytest.fixture
def w() -> World:
    return World(make_policy("tao"), BOUNDS, a=100_000, b=100_000)


def begin(w: World, seconds: float = 300.0) -> None:
    assert of_kind(w.send(WeightsUpdateBegan(w.at, w.at + seconds)), DispatchTurn) == []


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_under_every_policy_turns_wait_for_the_end_and_then_go(policy: str) -> None:
    w = World(make_policy(policy), BOUNDS, a=100_000, b=100_000)
    w.arrive("home", "h1")
    w.finish("h1")
    w.arrive("runs", "r1")
    begin(w)
    for session in ("home", "new", "runs"):
        w.arrive(session, f"{session} held")
    assert isinstance(w.session("runs").phase, Running), "what runs goes on"
    w.finish("r1")
    w.run_for(100.0)
    assert w.scheduler.view.held_turns == 3
    w.send(WeightsUpdateEnded(w.at))
    w.run_for(6.0)
    assert w.scheduler.view.held_turns == 0
    assert of_kind(w.log, RefuseTurn) == []


def test_the_end_voids_all_credit(w: World) -> None:
    w.arrive("s", "s1")
    w.finish("s1")
    assert w.session("s").evidence
    begin(w)
    assert w.session("s").evidence
    assert isinstance(w.session("s").phase, Acting)
    w.send(WeightsUpdateEnded(w.at))
    assert w.session("s").evidence == {}
    assert w.session("s").home is not None, "it keeps its admission"


def test_a_turn_that_ends_meanwhile_earns_credit_that_the_end_voids(w: World) -> None:
    w.arrive("s", "s1")
    begin(w)
    w.finish("s1")
    w.send(WeightsUpdateEnded(w.at))
    assert w.session("s").evidence == {}


def test_a_turn_that_runs_across_the_end_earns_no_credit(w: World) -> None:
    """Its prompt was computed with the old weights; that of the next turn is not."""
    w.arrive("s", "s1")
    begin(w)
    w.after(1.0).send(WeightsUpdateEnded(w.at))
    w.after(1.0).finish("s1")
    assert w.session("s").evidence == {}
    w.arrive("s", "s2", 1_200)
    w.after(1.0).finish("s2", 1_200, 100)
    assert w.session("s").evidence[ReplicaId("a")].tokens == 1_300


def test_an_end_that_is_never_told_comes_at_the_deadline(w: World) -> None:
    w.arrive("s", "s1")
    w.finish("s1")
    begin(w, 30.0)
    w.arrive("s", "s2")
    assert w.scheduler.next_wakeup() == w.at + 30.0
    told = w.scheduler.snapshot(w.at + 10.0)["weights_update_ends_in_seconds"]
    assert told == pytest.approx(20.0)
    assert "weights are updated" in str(w.scheduler.explain(w.session("s").id))
    w.run_for(30.0)
    assert w.scheduler.snapshot()["weights_update_ends_in_seconds"] is None
    w.run_for(1.0)
    assert isinstance(w.session("s").phase, Running)


def test_once_more_moves_the_deadline_and_an_end_too_many_is_ignored(w: World) -> None:
    begin(w, 30.0)
    w.after(20.0)
    begin(w, 30.0)
    w.run_for(29.0)
    w.arrive("s", "s1")
    assert isinstance(w.session("s").phase, Waiting)
    w.send(WeightsUpdateEnded(w.at))
    w.send(WeightsUpdateEnded(w.at))
    assert w.ignored == {"WeightsUpdateEnded": 1}


def test_bounds_on_waiting_count_from_the_end(w: World) -> None:
    begin(w)
    w.arrive("s", "s1", 90_000)
    w.arrive("t", "t1", 90_000)
    w.arrive("u", "u1", 90_000)
    w.run_for(100.0)
    w.send(WeightsUpdateEnded(w.at))
    w.run_for(19.0)
    assert w.scheduler.view.held_turns == 1
    w.run_for(1.0)
    assert w.scheduler.view.held_turns == 0, "placed by force at its bound"


def test_what_was_held_during_an_update_is_not_waited_too_long_for(w: World) -> None:
    """The joint decision places first who has waited for a minute; everybody had."""
    begin(w)
    w.arrive("s", "s1", 90_000)
    w.run_for(100.0)
    assert w.scheduler.view.waited_seconds(w.session("s"), w.at) == 100.0
    w.arrive("t", "t1", 90_000)
    w.arrive("u", "u1", 90_000)
    w.send(WeightsUpdateEnded(w.at))
    w.run_for(5.0)
    (waits,) = (w.session(name) for name in "stu" if isinstance(w.session(name).phase, Waiting))
    assert w.scheduler.view.waited_seconds(waits, w.at) == 5.0


def test_a_plan_that_comes_back_meanwhile_places_nobody() -> None:
    w = World(make_policy("tao"), BOUNDS, a=3_000)
    w.arrive("s", "s1", 2_000)
    w.arrive("t", "t1", 2_000)
    w.finish("s1", 2_000, 0)
    w.end("s")
    [compute] = of_kind(w.after(1.0).wake(), ComputePlan)
    begin(w)
    assert w.solve(compute) == []
    w.send(WeightsUpdateEnded(w.at))
    w.run_for(2.0)
    assert isinstance(w.session("t").phase, Running)


def test_a_deadline_must_be_a_number() -> None:
    with pytest.raises(EventError, match="finite"):
        WeightsUpdateBegan(0.0, float("inf"))


def test_a_wake_up_meanwhile_decides_nothing_though_somebody_waits(w: World) -> None:
    w.arrive("s", "s1")
    w.finish("s1")
    begin(w, 10.0)
    w.arrive("new", "n1")
    assert w.after(5.0).wake() == []
    assert w.scheduler.next_wakeup() == 10.0, "the end of the update at the latest"
    assert of_kind(w.after(5.0).wake(), ComputePlan), "it has ended by its deadline"


# --- who comes back meanwhile ----------------------------------------------------------------------------------------


def back_meanwhile(w: World) -> None:
    """`s` holds an admission on `a`, and its next turn comes while weights are updated."""
    w.arrive("s", "s1", pinned="a")
    w.finish("s1")
    begin(w)
    w.arrive("s", "s2", 1_200)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_under_every_policy_who_comes_back_meanwhile_has_its_admission_again(policy: str) -> None:
    w = World(make_policy(policy), BOUNDS, a=100_000, b=100_000)
    w.arrive("s", "s1")
    w.finish("s1")
    home = w.session("s").home
    begin(w)
    w.arrive("new", "n1")
    w.arrive("s", "s2", 1_200)
    w.arrive("s", "s3", 1_300)
    sent = of_kind(w.send(WeightsUpdateEnded(w.at)), DispatchTurn)
    if home is None:  # admissions are for a turn
        assert sent == []
        return
    assert [(turn.turn, turn.replica, turn.reason) for turn in sent] == [
        ("s2", home, Reason.HOME),
        ("s3", home, Reason.HOME),
    ]
    assert w.session("s").home == home
    assert w.session("s").interrupts == 0
    assert of_kind(w.log, InterruptSession) == []


def test_newcomers_do_not_take_the_room_of_those_who_come_back() -> None:
    w = World(make_policy("tao"), BOUNDS, a=5_000)
    w.arrive("s", "s1", 2_000)
    w.finish("s1", 2_000)
    begin(w)
    w.arrive("new", "n1", 3_500)
    w.arrive("s", "s2", 2_500)
    w.send(WeightsUpdateEnded(w.at))
    w.run_for(10.0)
    assert isinstance(w.session("s").phase, Running)
    assert isinstance(w.session("new").phase, Waiting), "it waits for room"


def test_meanwhile_it_waits_and_that_is_told(w: World) -> None:
    back_meanwhile(w)
    assert w.session("s").phase == Waiting((TurnId("s2"),), w.at, ReplicaId("a"))
    assert w.reserved("a") == 0
    told = w.scheduler.explain(w.session("s").id)
    assert told is not None
    assert str(told["why"]).endswith("; then it has its admission on a again")


def test_a_client_that_leaves_meanwhile_leaves_nothing_behind(w: World) -> None:
    back_meanwhile(w)
    w.arrive("s", "s3", 1_300)
    w.leave("s2")
    assert w.session("s").phase == Waiting((TurnId("s3"),), w.at, ReplicaId("a"))
    w.leave("s3")
    assert isinstance(w.session("s").phase, Away)
    assert w.send(WeightsUpdateEnded(w.at)) == []
    assert w.reserved("a") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.lose("a"), Interruption.REPLICA_LOST),
        (lambda w: w.drain("a"), Interruption.DRAINING),
        (lambda w: w.remove("a"), Interruption.REPLICA_LOST),
        (lambda w: w.send(ModelsChanged(w.at, ReplicaId("a"), ("other",))), Interruption.MODEL),
        (lambda w: w.arrive("s", "s3", model="y"), Interruption.MODEL),
    ],
)
def test_a_replica_that_is_not_there_any_more_is_nothing_to_come_back_to(
    change: Callable[[World], list[Command]], reason: Interruption
) -> None:
    w = World(make_policy("tao"), BOUNDS)
    w.join("a", 100_000, ("x",))
    w.join("b", 100_000, ("x", "y"))
    w.arrive("s", "s1", pinned="a", model="x")
    w.finish("s1")
    begin(w)
    w.arrive("s", "s2", 1_200, model="x")
    (lost,) = of_kind(change(w), InterruptSession)
    assert (lost.session, lost.replica, lost.reason) == ("s", "a", reason)
    assert w.session("s").interrupts == 1
    assert of_kind(w.send(WeightsUpdateEnded(w.at)), DispatchTurn) == []
    w.run_for(2.0)
    assert isinstance(w.session("s").phase, Running)
    assert w.session("s").home == "b"


def test_what_no_replica_could_hold_goes_to_its_engine_at_the_end() -> None:
    w = World(make_policy("tao"), BOUNDS, a=5_000)
    begin(w)
    w.arrive("s", "s1", 90_000)
    (sent,) = of_kind(w.send(WeightsUpdateEnded(w.at)), DispatchTurn)
    assert (sent.turn, sent.reason) == ("s1", Reason.OVERSIZE)
