"""One session from its first turn to its end, and two that compete, under the joint policy."""

from core_kit import World, of_kind

from tao.core.commands import (
    AdmitSession,
    CloseSession,
    ComputePlan,
    DispatchTurn,
    InterruptSession,
    Reason,
)
from tao.core.events import PlanReady
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Acting, Running, Waiting
from tao.policies import make_policy


def test_a_lone_session_is_never_held() -> None:
    world = World(make_policy("tao"), a=10_000, b=10_000)
    [admit, dispatch] = world.arrive("s", "t1")
    assert isinstance(admit, AdmitSession)
    assert admit.weight_tokens == 1512
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason, dispatch.hold_seconds) == ("a", Reason.ROOM, 0.0)
    world.after(1).first_token("t1")
    world.after(1).finish("t1", 1000, 100)
    assert isinstance(world.session("s").phase, Acting)
    assert world.free("a") == 10_000 - 1100 - 512
    [dispatch] = world.after(3).arrive("s", "t2", 1300)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.HOME)
    world.finish("t2", 1290, 50, 1088)
    assert of_kind(world.end("s"), CloseSession)
    assert world.free("a") == world.free("b") == 10_000


def test_interrupted_at_a_tool_boundary_and_restarted_where_the_cache_lives() -> None:
    world = World(make_policy("tao-paper"), a=4_000)
    world.arrive("s", "t1", 1500)
    world.after(1).arrive("r", "u1", 1200)
    world.finish("t1", 1500, 300)
    world.after(1).finish("u1", 1200, 1200)  # 1,812 + 2,912 tokens are booked, 4,000 are there
    [interrupted] = of_kind(world.wake(), InterruptSession)
    assert interrupted.session == "s"
    assert isinstance(world.session("r").phase, Acting)
    world.arrive("s", "t2", 1900)
    assert isinstance(world.session("s").phase, Waiting)
    world.end("r")
    [compute] = of_kind(world.after(1).wake(), ComputePlan)
    [candidate] = compute.request.candidates
    assert candidate.credit_tokens == {"a": round(1800 * 2 ** (-2 / 10))}
    assert candidate.ready == 1
    plan = PlanReady(world.at, compute.plan, ((SessionId("s"), ReplicaId("a")),))
    [_, dispatch] = world.send(plan)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.reason, dispatch.hold_seconds) == (Reason.PLANNED, 1.0)
    assert isinstance(world.session("s").phase, Running)
