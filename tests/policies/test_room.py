"""How much of a replica is offered to those who wait."""

from core_kit import World

from tao.core.commands import DispatchTurn, Reason
from tao.core.phases import Waiting
from tao.policies import make_policy
from tao.policies.room import GrowthRoom, WholeCapacity


def test_growth_room_keeps_a_share_of_the_capacity_from_newcomers() -> None:
    world = World(make_policy("tao"), a=10_000)
    view = world.scheduler.view
    [replica] = view.up_replicas()
    assert GrowthRoom(0.05).offered_tokens(view, replica) == 10_000
    world.arrive("s", "t1", 4_488)
    assert WholeCapacity().offered_tokens(view, replica) == 5_000
    assert GrowthRoom(0.05).offered_tokens(view, replica) == 4_500
    world.arrive("r", "u1", 4_400)
    assert (
        WholeCapacity().offered_tokens(view, replica) == 5_000
    )  # 4,912 tokens fit, but not into what is offered
    assert isinstance(world.session("r").phase, Waiting)
    assert GrowthRoom(0.6).offered_tokens(view, replica) == 0


def test_a_session_as_large_as_the_replica_is_not_held_on_an_empty_one() -> None:
    world = World(make_policy("tao"), a=10_000)
    [_, dispatch] = world.arrive("s", "t1", 9_400)
    assert isinstance(dispatch, DispatchTurn)
    assert dispatch.reason is Reason.ROOM


def test_without_room_a_replica_is_filled_to_the_brim() -> None:
    world = World(make_policy("tao-no-room"), a=10_000)
    world.arrive("s", "t1", 4_488)
    [_, dispatch] = world.arrive("r", "u1", 4_488)
    assert isinstance(dispatch, DispatchTurn)
    assert world.free("a") == 0
