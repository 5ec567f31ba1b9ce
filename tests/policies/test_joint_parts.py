"""The exchangeable parts of a joint policy: interrupt orders, leases, pacing, what a late plan is still good for."""

import pytest
from core_kit import World
from policy_kit import acting_session

from tao.core.facts import ReplicaChanged, TurnDispatched, TurnHeld
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import Assignment, View
from tao.core.session import Replica, Session
from tao.policies import make_policy
from tao.policies.credit import HalfLifeCredit
from tao.policies.interruption import (
    LeaseWhileExpected,
    LeastValueFirst,
    NoLease,
    SmallestFirst,
    overcommitted_interrupts,
)
from tao.policies.pacing import EveryPeriod, OnChange, Pacing
from tao.policies.readiness import ToolReadiness
from tao.policies.returns import EmpiricalBernstein
from tao.policies.stale import DropChanged, DropPlan, StalePlan


def least_value_first() -> LeastValueFirst:
    return LeastValueFirst(HalfLifeCredit(), ToolReadiness(EmpiricalBernstein()))


def nothing_reserved(replica: Replica) -> int:
    return 0


def weight_tokens(session: Session, replica: ReplicaId) -> int:
    return session.live_tokens + 512


# --- who is interrupted ------------------------------------------------------------------------------------------------


def test_the_order_is_credit_then_readiness_then_footprint() -> None:
    order = least_value_first()
    sessions = [
        acting_session("cold and far", footprint_tokens=9_000),
        acting_session("cold and small", footprint_tokens=2_000),
        acting_session("cold and back", footprint_tokens=1_000, finished_at=0.0),
        acting_session("warm", footprint_tokens=500, evidence={"a": (400, 0.0)}),
        acting_session("warm elsewhere", footprint_tokens=500, evidence={"b": (400, 0.0)}),
    ]
    ranked = [s.id for s in sorted(sessions, key=lambda s: order.key(s, 0.0))]
    assert ranked == ["warm elsewhere", "cold and small", "cold and far", "cold and back", "warm"]


def test_smallest_first_sees_only_the_context() -> None:
    sessions = [
        acting_session("large", footprint_tokens=9_000),
        acting_session("small and warm", footprint_tokens=10, evidence={"a": (10, 0.0)}, finished_at=0.0),
    ]
    assert min(sessions, key=lambda s: SmallestFirst().key(s, 0.0)).id == "small and warm"


@pytest.fixture
def crowded() -> World:
    """On a: p (1,112), q (2,112), r (3,112) act, x (4,512) runs: 10,848 tokens. Nobody has credit any more."""
    w = World(make_policy("tao"), a=20_000, b=20_000)
    for name, tokens in (("p", 500), ("q", 1_500), ("r", 2_500)):
        w.arrive(name, f"{name}1", tokens, pinned="a")
        w.finish(f"{name}1", tokens, 100)
    w.arrive("x", "x1", 4_000, pinned="a")
    w.flush("a")
    w.after(1)
    return w


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (10_848, []),
        (10_847, ["p"]),
        (9_736, ["p"]),
        (9_735, ["p", "q"]),
        (7_000, ["p", "q", "r"]),
        (0, ["p", "q", "r"]),
    ],
)
def test_the_fewest_that_bring_the_replica_back_to_its_capacity(
    crowded: World, capacity: int, expected: list[str]
) -> None:
    crowded.resize("a", capacity)
    chosen = overcommitted_interrupts(
        crowded.scheduler.view, nothing_reserved, least_value_first(), crowded.at
    )
    assert chosen == expected


def test_equals_are_interrupted_in_the_order_of_their_ids() -> None:
    w = World(make_policy("tao"), a=20_000)
    for name in ("q", "p", "r"):
        w.arrive(name, f"{name}1", 500)
        w.finish(f"{name}1", 500, 0)
    w.resize("a", 1_500)
    assert overcommitted_interrupts(w.scheduler.view, nothing_reserved, SmallestFirst(), 0.0) == ["p", "q"]


# --- whose return is still believed in ---------------------------------------------------------------------------------


def test_leases() -> None:
    w = World(make_policy("tao"), a=4_000, b=4_000)
    w.arrive("p", "p1", 2_000)  # on a
    w.finish("p1", 2_000, 0)
    w.arrive("q", "q1", 2_000)  # on b
    w.finish("q1", 2_000, 0)
    w.lose("b")
    view = w.scheduler.view
    lease = LeaseWhileExpected(ToolReadiness(EmpiricalBernstein()))
    assert lease.lapsed(view, 19.0) == []
    assert lease.lapsed(view, 40.0) == ["q"]  # in the pool it is of no use to anybody
    assert NoLease().lapsed(view, 40.0) == ()
    w.arrive("x", "x1", 3_000)
    assert lease.lapsed(view, 41.0) == ["q", "p"]
    assert lease.lapsed(view, 41.5) == ()  # looked at a moment ago
    w.tool_finished("p")
    assert LeaseWhileExpected(ToolReadiness(EmpiricalBernstein())).lapsed(view, 15.0) == []


# --- when to plan ------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting() -> View:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("s", "t1", 2_000)
    return w.scheduler.view


@pytest.mark.parametrize("pacing", [EveryPeriod(), OnChange()])
def test_nothing_to_plan(pacing: Pacing) -> None:
    w = World(make_policy("tao"), a=4_000)
    assert pacing.next_at(w.scheduler.view, 7.0) is None
    w.arrive("s", "t1")
    assert pacing.next_at(w.scheduler.view, 7.0) is None
    w.resize("a", 1_000)
    assert pacing.next_at(w.scheduler.view, 7.0) == 7.0  # overcommitted
    w.lose("a")
    w.arrive("r", "u1")
    assert pacing.next_at(w.scheduler.view, 7.0) is None  # nowhere to go


def test_once_a_period(waiting: View) -> None:
    pacing = EveryPeriod(period_seconds=2.0)
    assert pacing.next_at(waiting, 5.0) == 5.0
    pacing.planned(5.0)
    pacing.observe(TurnHeld(5.5, SessionId("s"), TurnId("t")))
    assert pacing.next_at(waiting, 5.5) == 7.0
    assert pacing.next_at(waiting, 8.0) == 8.0


def test_at_once_when_something_changed_but_not_more_often_than_the_gap(waiting: View) -> None:
    pacing = OnChange(period_seconds=1.0, gap_seconds=0.05)
    pacing.planned(5.0)
    assert pacing.next_at(waiting, 5.01) == 6.0
    pacing.observe(TurnDispatched(5.01, SessionId("s"), TurnId("t"), ReplicaId("a"), 10))  # changes no answer
    assert pacing.next_at(waiting, 5.01) == 6.0
    pacing.observe(ReplicaChanged(5.01, ReplicaId("a")))
    assert pacing.next_at(waiting, 5.01) == 5.05
    pacing.observe(TurnHeld(5.02, SessionId("s"), TurnId("t")))  # coalesced
    assert pacing.next_at(waiting, 5.02) == 5.05
    pacing.planned(5.05)
    assert pacing.next_at(waiting, 5.06) == 6.05


@pytest.mark.parametrize("pacing", [EveryPeriod(), OnChange()])
def test_not_while_a_plan_is_outstanding(pacing: Pacing) -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("s", "t1", 2_000)
    w.resize("a", 8_000)
    w.wake()
    assert pacing.next_at(w.scheduler.view, 100.0) is None


# --- what a late plan is still good for --------------------------------------------------------------------------------

P, Q, R = SessionId("p"), SessionId("q"), SessionId("r")
A, B = ReplicaId("a"), ReplicaId("b")
PLAN: list[Assignment] = [(P, A), (Q, A), (R, B)]


@pytest.fixture
def pool() -> World:
    """p, q and r of 2,512 tokens each wait; a takes two of them, b one."""
    w = World(make_policy("tao-paper"))
    for name in "pqr":
        w.arrive(name, f"{name}1", 2_000)
    w.join("a", 5_100)
    w.join("b", 3_000)
    return w


@pytest.mark.parametrize(
    ("rule", "changed", "expected"),
    [
        (DropPlan(), [], PLAN),
        (DropPlan(), [Q], []),
        (DropChanged(), [], PLAN),
        (DropChanged(), [Q], [(P, A), (R, B)]),
        (DropChanged(), [P, Q, R], []),
    ],
)
def test_changed_sessions(
    pool: World, rule: StalePlan, changed: list[SessionId], expected: list[Assignment]
) -> None:
    assert list(rule.select(pool.scheduler.view, PLAN, changed, weight_tokens)) == expected


@pytest.mark.parametrize(("rule", "expected"), [(DropPlan(), [(P, A)]), (DropChanged(), [(P, A), (R, B)])])
def test_less_room_than_planned(pool: World, rule: StalePlan, expected: list[Assignment]) -> None:
    pool.resize("a", 5_000)
    assert list(rule.select(pool.scheduler.view, PLAN, [], weight_tokens)) == expected


@pytest.mark.parametrize("rule", [DropPlan(), DropChanged()])
def test_replicas_and_sessions_that_are_gone(pool: World, rule: StalePlan) -> None:
    pool.lose("a")
    pool.leave("r1")
    nonsense = [(SessionId("nobody"), A), (R, B), (P, ReplicaId("nowhere"))]
    assert list(rule.select(pool.scheduler.view, nonsense, [], weight_tokens)) == []
