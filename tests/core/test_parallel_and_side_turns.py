"""Several turns of one session at once: all are accounted, all are released; a side turn leaves the main line alone."""

from dataclasses import replace

import pytest
from core_kit import World, of_kind

from tao.core.commands import CloseSession, Closing, ComputePlan, DispatchTurn, Reason
from tao.core.events import TurnKind
from tao.core.ids import ReplicaId
from tao.core.phases import Acting, Running
from tao.core.session import Session
from tao.policies import make_policy

RESERVE = 512


def world(policy: str = "tao", **capacities: int) -> World:
    return World(make_policy(policy), None, **(capacities or {"a": 100_000, "b": 100_000}))


def main_line(session: Session) -> Session:
    """The record without what any event may move."""
    return replace(session, epoch=0, evidence=dict(session.evidence))


# --- parallel turns ----------------------------------------------------------------------------------------------------


def test_two_parallel_turns_are_both_booked_and_both_released() -> None:
    w = world()
    w.arrive("s", "t1", 1_000)
    [dispatch] = w.arrive("s", "t2", 3_000)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.HOME)
    assert w.reserved("a") == (3_000 + RESERVE) + 3_000
    w.finish("t1", 1_000, 100)
    assert w.reserved("a") >= 1_100 + 3_000
    w.finish("t2", 3_000, 200)
    assert isinstance(w.session("s").phase, Acting)
    assert w.reserved("a") == 3_200 + RESERVE
    w.end("s")
    assert w.reserved("a") == w.reserved("b") == 0


def test_the_tools_of_parallel_turns_are_waited_for_together() -> None:
    w = world()
    w.arrive("s", "t1")
    w.arrive("s", "t2")
    w.finish("t1", tools=("bash",))
    assert isinstance(w.session("s").phase, Running)
    w.finish("t2", tools=("grep", "read"))
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert [tool.name for tool in phase.tools] == ["bash", "grep", "read"]


def test_the_output_of_the_leading_turn_and_of_the_other_grows_the_booking() -> None:
    w = world()
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 1_000)
    before = w.reserved("a")
    w.progress("t1", 64)
    assert w.reserved("a") == before + 64
    w.progress("t2", 50)
    assert w.reserved("a") == before + 64 + 50
    assert w.progress("t2", 49) == []  # late
    assert w.ignored == {"TurnProgress": 1}
    assert w.reserved("a") == before + 64 + 50


def test_what_a_turn_leaves_elsewhere_is_its_own_context_not_the_longest_of_its_session() -> None:
    w = world()
    w.arrive("s", "t1", 50_000)
    w.drain("a")
    [dispatch] = w.arrive("s", "t2", 30_000)
    assert isinstance(dispatch, DispatchTurn)
    assert dispatch.replica == "b"
    w.finish("t2", 30_000, 100)
    assert w.session("s").evidence[ReplicaId("b")].tokens == 30_100


def test_usage_of_an_earlier_turn_does_not_take_from_the_one_that_leads_now() -> None:
    w = world()
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 2_000)  # beside t1, which leads
    w.finish("t1", 1_000, 100)
    w.arrive("s", "t3", 8_000)  # leads from here on
    w.finish("t2", 2_000, 100)
    assert w.reserved("a") == 8_000 + RESERVE
    w.progress("t3", 300)
    assert w.reserved("a") == 8_300 + RESERVE


def test_a_larger_parallel_prompt_covers_the_output_in_flight() -> None:
    w = world()
    w.arrive("s", "t1", 1_000)
    w.progress("t1", 500)
    assert w.reserved("a") == 1_500 + RESERVE
    w.arrive("s", "t2", 1_400)
    assert w.reserved("a") == (1_500 + RESERVE) + 1_400


def test_a_leading_turn_that_fails_gives_its_output_back() -> None:
    w = world()
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 1_000)
    w.progress("t1", 700)
    w.fail("t1")
    assert w.reserved("a") == (1_000 + RESERVE) + 1_000


def test_a_parallel_turn_that_is_routed_elsewhere_is_booked_there() -> None:
    w = world("round-robin")
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "t2", 2_000)
    assert (w.reserved("a"), w.reserved("b")) == (2_000, 2_000)
    w.finish("t1", 1_000, 0)
    w.finish("t2", 2_000, 0)
    assert (w.reserved("a"), w.reserved("b")) == (0, 0)


def test_a_turn_beside_one_on_a_draining_replica_goes_elsewhere() -> None:
    w = world()
    w.arrive("s", "t1")
    w.drain("a")
    [dispatch] = w.arrive("s", "t2")
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.FORCED)
    w.finish("t1")
    w.finish("t2")
    assert w.reserved("a") == 0
    assert w.session("s").home is None  # its admission was on the replica that drains


def test_a_turn_beside_one_stays_when_there_is_nowhere_else() -> None:
    w = world(a=100_000)
    w.arrive("s", "t1")
    w.drain("a")
    [dispatch] = w.arrive("s", "t2")
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.FORCED)


# --- side turns --------------------------------------------------------------------------------------------------------


def test_a_side_turn_leaves_footprint_credit_and_tool_timing_of_the_main_line() -> None:
    w = world()
    w.arrive("s", "t1", 5_000)
    w.finish("t1", 5_000, 100, tools=("bash",))
    before = main_line(w.session("s"))
    w.after(2).arrive("s", "title", 300, TurnKind.SIDE)
    assert main_line(w.session("s")) == before
    assert w.reserved("a") == (5_100 + RESERVE) + (300 + RESERVE)
    w.first_token("title")
    w.progress("title", 20)
    assert w.reserved("a") == (5_100 + RESERVE) + (320 + RESERVE)
    w.after(1).finish("title", 310, 40, tools=("websearch",))
    assert main_line(w.session("s")) == before
    assert w.reserved("a") == 5_100 + RESERVE
    [close] = of_kind(w.log, CloseSession)
    assert close.cause is Closing.SIDE_DONE


def test_a_side_turn_goes_where_its_session_is_admitted() -> None:
    w = world()
    w.arrive("x", "x1", 50_000)
    w.arrive("s", "t1", 1_000)
    assert w.session("s").home == "b"
    w.arrive("y", "y1", 80_000)  # now a is the roomier one
    [_, dispatch] = w.arrive("s", "title", 300, TurnKind.SIDE)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.SIDE)


def test_a_side_turn_that_does_not_fit_beside_its_session_goes_elsewhere() -> None:
    w = world(a=4_000, b=4_000)
    w.arrive("s", "t1", 3_000)
    [_, dispatch] = w.arrive("s", "title", 1_000, TurnKind.SIDE)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.ROOM)


def test_a_side_turn_beside_a_session_on_a_draining_replica_goes_elsewhere() -> None:
    w = world()
    w.arrive("s", "t1", 3_000)
    w.drain("a")
    [_, dispatch] = w.arrive("s", "title", 1_000, TurnKind.SIDE)
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.ROOM)


def test_a_side_turn_may_come_first_and_may_come_alone() -> None:
    w = world()
    w.arrive("s", "title", 300, TurnKind.SIDE)
    assert not w.knows("s")
    w.finish("title", 300, 20)
    assert not w.scheduler.view.sessions
    assert w.reserved("a") == 0


def test_several_side_turns_of_one_session_are_apart() -> None:
    w = world()
    w.arrive("s", "u1", 300, TurnKind.SIDE)
    w.arrive("s", "u2", 400, TurnKind.SIDE)
    assert w.reserved("a") + w.reserved("b") == 300 + 400 + 2 * RESERVE
    w.fail("u1")
    w.leave("u2")
    w.stopped("u2")
    assert not w.scheduler.view.sessions


def test_a_side_turn_that_is_held_is_placed_or_left_alone() -> None:
    w = world("tao-paper", a=4_000)
    w.arrive("s", "t1", 3_400)
    w.arrive("s", "title", 300, TurnKind.SIDE)
    assert w.scheduler.view.held_turns == 1
    w.finish("t1", 3_400, 10)
    assert w.scheduler.view.held_turns == 1
    w.leave("title")
    [close] = of_kind(w.log, CloseSession)
    assert close.cause is Closing.CLIENT_LEFT
    assert w.reserved("a") == 3_410 + RESERVE


@pytest.mark.parametrize("policy", ["round-robin", "sticky-least-loaded", "tao-no-credit"])
def test_side_turns_are_no_business_of_the_policy(policy: str) -> None:
    w = world(policy)
    w.arrive("s", "t1", 5_000)
    before = main_line(w.session("s"))
    w.arrive("s", "title", 300, TurnKind.SIDE)
    w.finish("title", 310, 40)
    assert main_line(w.session("s")) == before
    w.finish("t1")
    w.end("s")
    assert w.reserved("a") == w.reserved("b") == 0


# --- held together -----------------------------------------------------------------------------------------------------


def held_together() -> World:
    """s waits with two turns, which will need 2,000 + 512 for its admission and 1,500 beside it."""
    w = world("tao", a=10_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "t1", 1_500)
    w.arrive("s", "t2", 2_000)
    assert w.scheduler.view.beside_tokens(w.session("s")) == 2_000  # the first one leads
    return w


def test_a_plan_counts_all_held_turns_of_a_session() -> None:
    w = held_together()
    w.end("x")
    w.finish("x1")
    [compute] = of_kind(w.wake(), ComputePlan)
    assert compute.request.candidates[0].weight_tokens == 2_000 + RESERVE + 2_000
    w.solve(compute)
    assert w.reserved("a") == 2_000 + RESERVE + 2_000


def test_a_session_is_not_placed_where_only_one_of_its_turns_fits() -> None:
    w = held_together()
    w.join("b", 4_000)
    w.lose("b")
    w.join("b", 4_000)
    assert not of_kind(w.wake(), ComputePlan)
    w.resize("b", 4_600)
    [compute] = of_kind(w.after(1).wake(), ComputePlan)
    w.resize("b", 4_500)
    assert w.answer(compute, ("s", "b")) == []
    w.resize("b", 4_600)
    [compute] = of_kind(w.after(1).wake(), ComputePlan)
    w.answer(compute, ("s", "b"))
    assert w.free("b") == 4_600 - 4_512


def test_turns_that_no_replica_can_hold_together_go_at_once() -> None:
    w = held_together()
    w.arrive("s", "t3", 5_600)  # 5,600 + 512 + 2,000 + 5,600
    assert w.session("s").placement.reason is Reason.OVERSIZE  # type: ignore[union-attr]


def test_turns_of_an_earlier_line_are_all_beside_it() -> None:
    w = held_together()
    w.arrive("s", "t3", 300, TurnKind.RESET)
    assert w.scheduler.view.beside_tokens(w.session("s")) == 1_500 + 2_000
    assert w.scheduler.view.beside_tokens(w.session("x")) == 0


# --- apart -------------------------------------------------------------------------------------------------------------


def test_sessions_whose_ids_begin_alike_stay_apart() -> None:
    w = world()
    w.arrive("agent", "t1", 1_000)
    w.arrive("agent-2", "u1", 2_000)
    w.finish("t1", 1_000, 100)
    w.end("agent")
    assert not w.knows("agent")
    assert isinstance(w.session("agent-2").phase, Running)
    assert w.reserved("a") + w.reserved("b") == 2_000 + RESERVE
