"""Every wait has a deadline and every table a size."""

import pytest
from core_kit import World, of_kind

from tao.core import SchedulerSettings
from tao.core.commands import CloseSession, Closing, DispatchTurn, Reason, Refusal, RefuseTurn
from tao.core.events import TurnKind
from tao.core.phases import Acting, Away, Waiting
from tao.policies import make_policy


def full(settings: SchedulerSettings | None = None, *, policy: str = "tao-paper") -> World:
    """One replica, filled by a turn that runs on; whoever comes next must wait."""
    world = World(make_policy(policy), settings, a=10_000)
    world.arrive("x", "x1", 9_000)
    return world


# --- the bound on holding ----------------------------------------------------------------------------------------------


def test_a_hold_ends_by_force_at_its_bound() -> None:
    world = full()
    world.arrive("s", "t1")
    world.after(299.9).wake()
    assert isinstance(world.session("s").phase, Waiting)
    assert world.scheduler.next_wakeup() == pytest.approx(300.0)
    [dispatch] = of_kind(world.after(0.1).wake(), DispatchTurn)
    assert (dispatch.turn, dispatch.reason, dispatch.hold_seconds) == ("t1", Reason.FORCED, 300.0)
    assert world.free("a") < 0


def test_the_bound_is_a_setting_and_the_roomiest_replica_takes_them() -> None:
    world = World(make_policy("tao"), SchedulerSettings(hold_seconds_max=7), a=10_000, b=9_000)
    world.arrive("x", "x1", 9_400)
    world.arrive("y", "y1", 8_000)
    world.after(1).arrive("s", "t1")
    world.after(1).arrive("r", "u1")
    assert not of_kind(world.after(5).wake(), DispatchTurn)
    [first] = of_kind(world.after(1).wake(), DispatchTurn)
    [second] = of_kind(world.after(1).wake(), DispatchTurn)
    assert [(d.turn, d.replica, d.hold_seconds) for d in (first, second)] == [("t1", "b", 7), ("u1", "a", 7)]


def test_a_second_held_turn_does_not_move_the_bound() -> None:
    world = full(SchedulerSettings(hold_seconds_max=10))
    world.arrive("s", "t1", 1_000)
    world.after(9).arrive("s", "t2", 1_100)
    sent = of_kind(world.after(1).wake(), DispatchTurn)
    assert [(d.turn, d.hold_seconds) for d in sent] == [("t1", 10), ("t2", 1)]


# --- no replica is up --------------------------------------------------------------------------------------------------


def test_before_the_first_replica_joins_turns_are_held_and_refused_at_the_bound() -> None:
    world = World(make_policy("tao"))
    world.after(100).arrive("s", "t1")
    assert world.scheduler.next_wakeup() == 130.0
    world.after(29).wake()
    assert world.knows("s")
    refuse, close = world.after(1).wake()
    assert refuse == RefuseTurn("t1", "s", Refusal.NO_REPLICA)  # type: ignore[arg-type]
    assert close == CloseSession("s", Closing.REFUSED)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["tao", "tao-paper", "round-robin", "sticky-least-loaded"])
def test_held_turns_are_placed_when_a_replica_joins(policy: str) -> None:
    world = World(make_policy(policy))
    world.arrive("s", "t1")
    world.after(20).join("a", 10_000)
    assert world.scheduler.next_wakeup() == 20.0
    for compute in world.wake():
        if not isinstance(compute, DispatchTurn) and hasattr(compute, "request"):
            world.solve(compute)  # type: ignore[arg-type]
    [dispatch] = of_kind(world.log, DispatchTurn)
    assert (dispatch.turn, dispatch.hold_seconds) == ("t1", 20.0)


def test_the_bound_for_no_replica_starts_when_the_last_one_goes() -> None:
    world = full()
    world.arrive("s", "t1")
    world.after(100).lose("a")
    assert not of_kind(world.after(29.9).wake(), RefuseTurn)
    assert [r.turn for r in of_kind(world.after(0.1).wake(), RefuseTurn)] == ["t1"]


def test_a_replica_that_comes_back_in_time_restores_the_long_bound() -> None:
    world = full()
    world.arrive("s", "t1")
    world.after(10).lose("a")
    world.after(10).join("a", 10_000)
    assert not of_kind(world.after(100).wake(), RefuseTurn)
    assert world.knows("s")


def test_a_session_with_a_history_stays_known_when_its_turn_is_refused() -> None:
    world = World(make_policy("tao"), a=10_000)
    world.arrive("s", "t1")
    world.finish("t1")
    world.lose("a")
    world.arrive("s", "t2")
    assert not of_kind(world.after(30).wake(), CloseSession)
    assert isinstance(world.session("s").phase, Away)


# --- the pool ----------------------------------------------------------------------------------------------------------


def test_a_full_pool_refuses_and_changes_nothing_else() -> None:
    world = full(SchedulerSettings(held_turns_max=2))
    world.arrive("s", "t1")
    world.arrive("s", "t2")
    [refuse] = world.arrive("s", "t3")
    assert refuse == RefuseTurn("t3", "s", Refusal.POOL_FULL)  # type: ignore[arg-type]
    [refuse] = world.arrive("r", "u1")
    assert refuse == RefuseTurn("u1", "r", Refusal.POOL_FULL)  # type: ignore[arg-type]
    assert not world.knows("r")
    assert world.scheduler.view.held_turns == 2


def test_a_session_that_is_turned_away_is_back_all_the_same() -> None:
    """Its tool has ended: the next plan may admit it, so that its client's retry finds a place."""
    world = World(make_policy("tao"), SchedulerSettings(held_turns_max=1), a=10_000)
    world.arrive("s", "t1")
    world.finish("t1")
    world.lose("a")
    world.arrive("x", "x1")
    [refuse] = world.after(60).arrive("s", "t2")
    assert isinstance(refuse, RefuseTurn)
    phase = world.session("s").phase
    assert isinstance(phase, Acting)
    assert phase.finished_at == 60.0
    assert phase.home is None


def test_running_sessions_need_no_place_in_the_pool() -> None:
    world = full(SchedulerSettings(held_turns_max=1))
    world.arrive("s", "t1")
    assert of_kind(world.arrive("x", "x2", 9_100), DispatchTurn)


# --- the session table -------------------------------------------------------------------------------------------------


def test_a_full_table_forgets_the_session_that_was_idle_longest() -> None:
    world = World(make_policy("tao"), SchedulerSettings(sessions_max=3), a=100_000)
    for session in ("p", "q", "r"):
        world.after(1).arrive(session, f"{session}1")
        world.finish(f"{session}1")
    world.after(1).tool_finished("p")  # heard of: now q is the one idle longest
    [close, *_] = world.arrive("s", "t1")
    assert close == CloseSession("q", Closing.TABLE_FULL)  # type: ignore[arg-type]
    assert world.knows("p")
    assert world.reserved("a") == 2 * 1612 + 1512


def test_a_table_full_of_busy_sessions_refuses() -> None:
    world = World(make_policy("tao"), SchedulerSettings(sessions_max=1), a=100_000)
    world.arrive("p", "p1")
    [refuse] = world.arrive("s", "t1")
    assert refuse == RefuseTurn("t1", "s", Refusal.POOL_FULL)  # type: ignore[arg-type]
    assert of_kind(world.arrive("p", "p2"), DispatchTurn)


def test_a_side_turn_needs_a_place_in_the_table_too() -> None:
    world = World(make_policy("tao"), SchedulerSettings(sessions_max=1), a=100_000)
    world.arrive("p", "p1")
    [refuse] = world.arrive("p", "p2", 100, TurnKind.SIDE)
    assert isinstance(refuse, RefuseTurn)
    assert refuse.session == "p"


# --- idle sessions -----------------------------------------------------------------------------------------------------


def test_a_session_that_never_comes_back_is_forgotten_and_holds_nobody_back() -> None:
    world = World(make_policy("tao"), SchedulerSettings(idle_seconds_max=60, hold_seconds_max=900), a=10_000)
    world.arrive("gone", "g1", 8_000)
    world.finish("g1", 8_000, 500)
    world.after(10).arrive("s", "t1", 3_000)
    assert isinstance(world.session("s").phase, Waiting)
    [close, *_] = world.after(50).wake()
    assert close == CloseSession("gone", Closing.IDLE)  # type: ignore[arg-type]
    assert world.reserved("a") == 0


def test_word_of_a_tool_restarts_the_idle_bound() -> None:
    world = World(make_policy("tao"), SchedulerSettings(idle_seconds_max=60), a=10_000)
    world.arrive("s", "t1")
    world.finish("t1")
    world.after(50).tool_expected("s", 100)
    world.after(50).tool_finished("s")
    assert not of_kind(world.after(59).wake(), CloseSession)
    assert of_kind(world.after(1).wake(), CloseSession)


def test_an_interrupted_session_expires_from_the_pool() -> None:
    world = World(make_policy("tao"), SchedulerSettings(idle_seconds_max=60), a=10_000)
    world.arrive("s", "t1")
    world.finish("t1")
    world.lose("a")
    world.after(60).wake()
    assert not world.knows("s")
    assert not world.scheduler.view.pool


def test_running_and_held_sessions_do_not_expire() -> None:
    world = full(SchedulerSettings(idle_seconds_max=60, hold_seconds_max=900))
    world.arrive("s", "t1")
    assert not of_kind(world.after(500).wake(), CloseSession)


# --- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["hold_seconds_max", "no_replica_seconds_max", "idle_seconds_max", "plan_seconds_max"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_bound_in_seconds_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be greater than 0"):
        SchedulerSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sessions_max", "held_turns_max"])
def test_a_table_must_hold_something(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        SchedulerSettings(**{name: 0})
