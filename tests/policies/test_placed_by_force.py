"""Who is placed by force, and gives the place back at its tool boundary so that nobody else loses his."""

import pytest
from core_kit import World, of_kind
from policy_kit import acting_session

from tao.core.commands import DispatchTurn, InterruptSession, Reason
from tao.core.ids import ReplicaId
from tao.core.phases import Acting, Waiting
from tao.core.session import Placement
from tao.core.settings import SchedulerSettings
from tao.policies import make_policy
from tao.policies.credit import HalfLifeCredit
from tao.policies.interruption import LongestAwayFirst
from tao.policies.readiness import NoReadiness


def overfull(policy: str) -> World:
    """10,000 tokens: `x` (5,612) and `y` (3,312) run; `s` (2,512) has waited for 20 s and runs too, `w` waits since 5 s."""
    w = World(make_policy(policy), SchedulerSettings(hold_seconds_max=20), a=10_000)
    w.arrive("x", "x1", 5_100)
    w.arrive("y", "y1", 2_800)
    w.arrive("s", "s1", 2_000)
    w.run_for(15)
    w.arrive("w", "w1", 3_000)
    w.run_for(5)
    forced = of_kind(w.log, DispatchTurn)[-1]
    assert (forced.session, forced.reason) == ("s", Reason.FORCED)
    assert w.free("a") < 0
    return w


def test_who_was_placed_by_force_gives_its_place_back_for_the_reserve_too() -> None:
    w = overfull("tao")
    w.end("y")
    w.finish("y1", 2_800, 0)  # and leaves
    w.resize("a", 8_900)  # x and s fit, but not without a part of the reserve of 890
    w.finish("s1", 2_000, 100)
    w.run_for(2)
    assert isinstance(w.session("s").phase, Acting)
    assert w.session("s").home is None, "it went back to the pool"
    assert w.session("x").home == "a"


def test_nobody_gives_a_place_back_that_nobody_waits_for() -> None:
    w = overfull("tao")
    w.end("w")
    w.leave("w1")
    w.end("y")
    w.finish("y1", 2_800, 0)
    w.resize("a", 8_900)
    w.finish("s1", 2_000, 100)
    w.run_for(2)
    assert w.session("s").home == "a"


def test_a_resident_keeps_its_place_where_one_placed_by_force_is_there() -> None:
    """Both act with credits of one power of two; the capacity is exceeded, and one of them has to go."""
    w = overfull("tao")
    w.finish("y1", 2_800, 100)
    w.finish("s1", 2_100, 200)
    w.run_for(0.2)
    interrupted = [command.session for command in of_kind(w.log, InterruptSession)]
    assert interrupted == ["s"]
    assert w.session("y").home == "a"
    assert isinstance(w.session("w").phase, Waiting), (
        "what s gave back is the reserve: nobody is placed in it"
    )


def test_without_a_reserve_the_capacity_alone_counts() -> None:
    w = overfull("tao-no-room")
    w.end("y")
    w.finish("y1", 2_800, 0)
    w.resize("a", 8_900)
    w.finish("s1", 2_000, 100)
    w.run_for(0.2)
    assert not of_kind(w.log, InterruptSession)


@pytest.mark.parametrize(
    ("credit_tokens", "is_first"),
    [(5_000, True), (4_100, True), (4_000, False), (20_000, True)],
    ids=["the same", "the same power of two", "less", "more"],
)
def test_the_order_is_credit_then_force(credit_tokens: int, is_first: bool) -> None:
    order = LongestAwayFirst(HalfLifeCredit(), NoReadiness())
    forced = acting_session("forced", evidence={"a": (5_000, 0.0)}, footprint_tokens=9_000)
    forced.placement = Placement(0.0, ReplicaId("a"), Reason.FORCED)
    planned = acting_session("planned", evidence={"a": (credit_tokens, 0.0)}, footprint_tokens=1_000)
    planned.placement = Placement(0.0, ReplicaId("a"), Reason.PLANNED)
    assert (order.key(forced, 0.0) < order.key(planned, 0.0)) is is_first
