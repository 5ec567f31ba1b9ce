"""Plans are made from a snapshot and come back to a world that has moved: late, stale, failed or nonsense."""

import pytest
from core_kit import World, of_kind

from tao.core import SchedulerSettings
from tao.core.commands import AdmitSession, ComputePlan, DispatchTurn, Reason
from tao.core.events import PlanFailed, PlanReady
from tao.core.ids import PlanId
from tao.core.phases import Acting, Running, Waiting
from tao.policies import make_policy


def pooled(policy: str = "tao", settings: SchedulerSettings | None = None) -> tuple[World, ComputePlan]:
    """Sessions p and q wait, room for both has come, and a plan for them is outstanding."""
    w = World(make_policy(policy), settings, a=10_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("p", "p1", 2_000)
    w.arrive("q", "q1", 1_000)
    w.after(1).end("x")
    w.finish("x1", 9_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    assert [c.session for c in compute.request.candidates] == ["p", "q"]
    return w, compute


def dispatched(w: World) -> list[tuple[str, str]]:
    return [(d.turn, d.reason.value) for d in of_kind(w.log, DispatchTurn) if d.turn != "x1"]


def test_a_plan_is_applied_in_its_order() -> None:
    w, compute = pooled()
    commands = w.solve(compute)
    assert [type(c) for c in commands] == [AdmitSession, DispatchTurn] * 2
    assert dispatched(w) == [("p1", "planned"), ("q1", "planned")]


def test_one_plan_at_a_time() -> None:
    w, compute = pooled()
    assert w.after(3).wake() == []
    assert w.scheduler.snapshot()["planning"] is True
    w.answer(compute)
    assert w.scheduler.snapshot()["planning"] is False
    [again] = w.wake()
    assert isinstance(again, ComputePlan)
    assert again.plan == compute.plan + 1


def test_an_answer_that_comes_twice_counts_once() -> None:
    w, compute = pooled()
    w.answer(compute, ("p", "a"))
    assert w.answer(compute, ("q", "a")) == []
    assert w.ignored == {"PlanReady": 1}


def test_an_answer_to_a_plan_that_nobody_asked_for() -> None:
    w = World(make_policy("tao"), a=10_000)
    assert w.send(PlanReady(0.0, PlanId(7), ())) == []
    assert w.send(PlanFailed(0.0, PlanId(7), "lost")) == []
    assert w.ignored == {"PlanReady": 1, "PlanFailed": 1}


def test_a_plan_past_its_deadline_is_given_up_and_its_answer_is_late() -> None:
    w, compute = pooled(settings=SchedulerSettings(plan_seconds_max=4))
    assert w.scheduler.next_wakeup() == 5.0
    [again] = of_kind(w.after(4).wake(), ComputePlan)
    assert w.answer(compute, ("p", "a")) == []
    assert w.answer(again, ("p", "a"))


def test_a_failed_plan_is_made_again() -> None:
    w, compute = pooled()
    assert w.send(PlanFailed(w.at, compute.plan, "worker died")) == []
    assert not w.scheduler.view.planning
    assert of_kind(w.after(1).wake(), ComputePlan)


# --- stale plans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("tao", [("q1", "planned")]), ("tao-paper", [])],
    ids=["drop changed", "drop all"],
)
def test_a_session_that_changed_falls_out_or_voids_the_plan(
    policy: str, expected: list[tuple[str, str]]
) -> None:
    w, compute = pooled(policy)
    w.arrive("p", "p2", 2_500)  # another weight than the plan counted on
    w.solve(compute)
    assert dispatched(w) == expected


@pytest.mark.parametrize("policy", ["tao", "tao-paper"])
def test_a_session_that_left_the_pool_is_not_placed(policy: str) -> None:
    w, compute = pooled(policy)
    w.leave("p1")
    w.solve(compute)
    assert dispatched(w) == ([("q1", "planned")] if policy == "tao" else [])


@pytest.mark.parametrize("policy", ["tao", "tao-paper"])
def test_only_what_still_fits_is_placed(policy: str) -> None:
    """p does not fit any more: the paper's rule applies the prefix before it, which is empty; tao goes on to q."""
    w = World(make_policy(policy), a=10_000)
    w.arrive("y", "y1", 500)
    w.arrive("x", "x1", 8_000)
    w.arrive("p", "p1", 2_000)
    w.arrive("q", "q1", 1_000)
    w.after(1).end("x")
    w.finish("x1", 8_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    w.arrive("y", "y2", 3_700)
    assert w.free("a") == 10_000 - 2 * 3_700 - 512
    sent = of_kind(w.solve(compute), DispatchTurn)
    assert [dispatch.turn for dispatch in sent] == (["q1"] if policy == "tao" else [])


@pytest.mark.parametrize("policy", ["tao", "tao-paper"])
def test_the_longest_prefix_that_fits(policy: str) -> None:
    w, compute = pooled(policy)
    w.resize("a", 3_000)
    w.solve(compute)
    assert dispatched(w) == [("p1", "planned")]


def test_a_replica_that_went_down_gets_nothing() -> None:
    w, compute = pooled()
    w.lose("a")
    assert w.solve(compute) == []
    assert isinstance(w.session("p").phase, Waiting)


def test_nonsense_is_not_applied() -> None:
    w, compute = pooled()
    w.answer(compute, ("nobody", "a"), ("p", "nowhere"), ("x", "a"), ("q", "a"), ("q", "a"))
    assert dispatched(w) == [("q1", "planned")]
    assert isinstance(w.session("p").phase, Waiting)


def test_an_assignment_beyond_the_capacity_is_not_applied() -> None:
    w = World(make_policy("tao"), a=10_000, b=2_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("p", "p1", 2_000)
    w.after(1).end("x")
    w.finish("x1", 9_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    assert w.answer(compute, ("p", "b")) == []


def test_a_session_whose_tool_runs_may_be_placed_and_is_home_when_it_returns() -> None:
    w = World(make_policy("tao"), a=10_000)
    w.arrive("s", "t1", 2_000)
    w.finish("t1", 2_000, 100)
    w.lose("a")
    w.join("a", 10_000)
    [compute] = of_kind(w.wake(), ComputePlan)
    [admit] = w.solve(compute)
    assert isinstance(admit, AdmitSession)
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert phase.home == "a"
    [dispatch] = w.arrive("s", "t2", 2_300)
    assert isinstance(dispatch, DispatchTurn)
    assert dispatch.reason is Reason.HOME
    assert isinstance(w.session("s").phase, Running)


# --- when to plan ------------------------------------------------------------------------------------------------------


def test_nothing_is_planned_while_nobody_waits() -> None:
    w = World(make_policy("tao"), SchedulerSettings(idle_seconds_max=60), a=10_000)
    w.arrive("s", "t1")
    assert w.scheduler.next_wakeup() is None
    w.finish("t1")
    assert w.scheduler.next_wakeup() == 60.0
    assert w.wake() == []


def test_a_wake_up_before_its_time_does_nothing() -> None:
    w, compute = pooled("tao-paper")
    w.answer(compute)
    assert w.scheduler.next_wakeup() == w.at + 1.0
    assert w.after(0.5).wake() == []
    assert of_kind(w.after(0.5).wake(), ComputePlan)
