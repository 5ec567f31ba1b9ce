"""Replicas join, change, drain, die, come back empty and leave."""

import pytest
from core_kit import World, of_kind

from tao.core.commands import DispatchTurn, Interruption, InterruptSession
from tao.core.phases import Acting, Running, Waiting
from tao.core.session import ReplicaState
from tao.policies import make_policy


@pytest.fixture
def w() -> World:
    return World(make_policy("tao"), a=100_000, b=100_000)


def acting_and_running(w: World) -> None:
    """Session s acts on a, session r runs on a."""
    w.lose("b")
    w.arrive("s", "t1")
    w.finish("t1")
    w.arrive("r", "u1")
    w.join("b", 100_000)


def state(w: World, replica: str) -> ReplicaState:
    return {str(r.id): r for r in w.scheduler.view.replicas.values()}[replica].state


# --- joining and changing ----------------------------------------------------------------------------------------------


def test_a_replica_that_joins_twice_takes_the_newer_capacity(w: World) -> None:
    w.join("a", 50_000)
    assert w.free("a") == 50_000
    assert [r.id for r in w.scheduler.view.up_replicas()] == ["a", "b"]


def test_a_changed_capacity_counts_at_once_and_excess_is_interrupted(w: World) -> None:
    acting_and_running(w)
    w.resize("a", 2_000)
    assert w.free("a") == 2_000 - 1_612 - 1_512
    assert w.scheduler.next_wakeup() == w.at
    [interrupt] = of_kind(w.wake(), InterruptSession)
    assert (interrupt.session, interrupt.reason) == ("s", Interruption.OVERCOMMITTED)
    assert isinstance(w.session("r").phase, Running)


def test_more_capacity_brings_waiting_sessions_in() -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("s", "t1", 2_000)
    w.resize("a", 8_000)
    [compute] = w.wake()
    assert of_kind(w.solve(compute), DispatchTurn)  # type: ignore[arg-type]


@pytest.mark.parametrize("event", ["resize", "drain", "lose", "remove", "flush"])
def test_events_of_an_unknown_replica_are_ignored(w: World, event: str) -> None:
    send = getattr(w, event)
    assert (send("z", 1) if event == "resize" else send("z")) == []
    assert list(w.ignored.values()) == [1]


# --- draining ----------------------------------------------------------------------------------------------------------


def test_draining_lets_turns_finish_and_sends_acting_sessions_elsewhere(w: World) -> None:
    acting_and_running(w)
    [interrupt] = w.drain("a")
    assert interrupt == InterruptSession("s", "a", Interruption.DRAINING)  # type: ignore[arg-type]
    assert state(w, "a") is ReplicaState.DRAINING
    [interrupt] = w.finish("u1")
    assert interrupt == InterruptSession("r", "a", Interruption.DRAINING)  # type: ignore[arg-type]
    assert w.reserved("a") == 0
    assert w.session("r").evidence["a"].tokens == 1_100  # type: ignore[index]  # the cache is there still
    assert w.drain("a") == []
    assert w.ignored == {"ReplicaDraining": 1}


def test_a_drained_replica_may_come_back(w: World) -> None:
    acting_and_running(w)
    w.drain("a")
    w.join("a", 100_000)
    assert state(w, "a") is ReplicaState.UP
    [compute] = w.wake()
    w.solve(compute)  # type: ignore[arg-type]
    assert w.session("s").home == "a"  # where its cache lives


# --- dying and coming back ---------------------------------------------------------------------------------------------


def test_a_lost_replica_takes_credit_and_admissions_with_it(w: World) -> None:
    acting_and_running(w)
    [interrupt] = w.lose("a")
    assert interrupt == InterruptSession("s", "a", Interruption.REPLICA_LOST)  # type: ignore[arg-type]
    assert w.session("s").evidence == {}
    assert isinstance(w.session("r").phase, Running)  # its turn ends by an event of its own
    [dispatch] = of_kind(w.fail("u1", retryable=True), DispatchTurn)
    assert dispatch.replica == "b"
    assert w.reserved("a") == 0


def test_a_turn_that_ends_on_a_lost_replica_leaves_no_evidence(w: World) -> None:
    acting_and_running(w)
    w.lose("a")
    [interrupt] = w.finish("u1")
    assert interrupt == InterruptSession("r", "a", Interruption.REPLICA_LOST)  # type: ignore[arg-type]
    assert w.session("r").evidence == {}


def test_a_replica_that_comes_back_empty_is_used_again_without_credit() -> None:
    w = World(make_policy("tao"), a=100_000)
    w.arrive("s", "t1")
    w.finish("t1", cached_tokens=0)
    w.arrive("s", "t2")
    w.finish("t2", cached_tokens=0)  # the learned rate falls
    w.lose("a")
    w.arrive("s", "t3")
    assert isinstance(w.session("s").phase, Waiting)
    w.after(5).join("a", 100_000)
    assert w.scheduler.view.up_replicas()[0].cache_rate == 1.0  # another process, another cache
    [compute] = w.wake()
    assert compute.request.candidates[0].credit_tokens == {}  # type: ignore[attr-defined]
    assert of_kind(w.solve(compute), DispatchTurn)  # type: ignore[arg-type]


def test_losing_it_twice_is_losing_it_once(w: World) -> None:
    acting_and_running(w)
    w.lose("a")
    assert w.lose("a") == []


def test_a_per_turn_policy_loses_nothing_but_the_turns() -> None:
    w = World(make_policy("round-robin"), a=100_000, b=100_000)
    w.arrive("s", "t1")
    w.lose("a")
    assert w.finish("t1") == []
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert phase.home is None
    assert w.reserved("a") == 0


# --- leaving -----------------------------------------------------------------------------------------------------------


def test_a_removed_replica_is_forgotten_at_once_when_nothing_runs_there(w: World) -> None:
    w.remove("b")
    assert list(w.scheduler.view.replicas) == ["a"]


def test_a_removed_replica_is_forgotten_when_its_last_turn_has_ended(w: World) -> None:
    acting_and_running(w)
    w.remove("a")
    assert state(w, "a") is ReplicaState.DOWN
    w.finish("u1")
    assert list(w.scheduler.view.replicas) == ["b"]


def test_a_removed_replica_that_joins_before_that_stays(w: World) -> None:
    acting_and_running(w)
    w.remove("a")
    w.join("a", 90_000)
    w.finish("u1")
    assert isinstance(w.session("r").phase, Acting)
    assert w.session("r").home == "a"
