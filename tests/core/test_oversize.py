"""A session that no replica could hold goes to the engine at once, whenever that becomes true."""

from core_kit import World, of_kind

from tao.core.commands import AdmitSession, DispatchTurn, Reason
from tao.policies import make_policy


def test_larger_than_every_replica_goes_to_the_roomiest_at_once() -> None:
    world = World(make_policy("tao"), a=4_000, b=6_000)
    [admit, dispatch] = world.arrive("s", "t1", 9_000)
    assert isinstance(admit, AdmitSession)
    assert (admit.replica, admit.reason, admit.weight_tokens) == ("b", Reason.OVERSIZE, 9_512)
    assert isinstance(dispatch, DispatchTurn)
    assert dispatch.hold_seconds == 0


def test_the_reserve_counts() -> None:
    world = World(make_policy("tao"), a=4_000)
    world.arrive("s", "t1", 4_000 - 512)
    assert world.session("s").placement.reason is Reason.ROOM  # type: ignore[union-attr]
    world.arrive("r", "u1", 4_000 - 511)
    assert world.session("r").placement.reason is Reason.OVERSIZE  # type: ignore[union-attr]


def test_held_while_no_replica_is_up_and_too_large_for_the_one_that_joins() -> None:
    world = World(make_policy("tao"))
    assert world.arrive("s", "t1", 9_000) == []
    [_, dispatch] = world.after(3).join("a", 4_000)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.reason, dispatch.hold_seconds) == (Reason.OVERSIZE, 3.0)


def test_held_for_room_and_then_too_large_for_what_is_left() -> None:
    world = World(make_policy("tao"), a=4_000, b=10_000)
    world.arrive("x", "x1", 8_000)
    world.arrive("s", "t1", 5_000)
    assert not of_kind(world.log, DispatchTurn)[1:]
    [dispatch] = of_kind(world.lose("b"), DispatchTurn)
    assert (dispatch.session, dispatch.replica, dispatch.reason) == ("s", "a", Reason.OVERSIZE)


def test_a_smaller_capacity_sends_those_that_no_longer_fit_anywhere() -> None:
    world = World(make_policy("tao"), a=10_000)
    world.arrive("x", "x1", 8_000)
    world.arrive("s", "t1", 5_000)
    world.arrive("r", "u1", 2_000)
    sent = of_kind(world.resize("a", 5_000), DispatchTurn)
    assert [dispatch.session for dispatch in sent] == ["s"]


def test_a_parallel_turn_makes_a_held_session_too_large() -> None:
    world = World(make_policy("tao"), a=10_000)
    world.arrive("x", "x1", 8_000)
    world.arrive("s", "t1", 5_000)
    sent = of_kind(world.after(1).arrive("s", "t2", 9_900), DispatchTurn)
    assert [(d.turn, d.reason, d.hold_seconds) for d in sent] == [
        ("t1", Reason.OVERSIZE, 1.0),
        ("t2", Reason.OVERSIZE, 0.0),
    ]
