"""The joint policy as a whole, and the policies that place each turn by itself."""

import pytest
from core_kit import World, of_kind
from virtual_driver import VirtualDriver, scripted_sessions

from tao.core.commands import AdmitSession, ComputePlan, DispatchTurn, InterruptSession, Reason
from tao.core.ids import SessionId
from tao.core.phases import Acting
from tao.policies import make_policy

JOINT = ["tao", "tao-paper", "tao-no-credit", "tao-no-readiness", "tao-footprint-only", "tao-bfd"]


def replicas_of(w: World) -> list[str]:
    return [d.replica for d in of_kind(w.log, DispatchTurn)]


# --- joint -------------------------------------------------------------------------------------------------------------


def test_with_an_empty_pool_a_session_goes_where_its_cache_is_then_where_most_room_is() -> None:
    w = World(make_policy("tao"), a=50_000, b=60_000)
    w.arrive("s", "t1", 5_000)
    assert replicas_of(w) == ["b"]
    w.arrive("s", "t2", 5_100)
    w.finish("t1", 5_000, 0)
    w.leave("t2")
    w.stopped("t2")  # away, and its cache is on b
    w.arrive("x", "x1", 20_000)
    assert replicas_of(w)[-1] == "b"  # 60,000 free again
    w.after(1).arrive("s", "t3", 5_200)
    assert replicas_of(w)[-1] == "b"  # although a has more room


def test_a_free_home_needs_no_room() -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("s", "t1", 3_000)
    w.finish("t1", 3_000, 100)
    [dispatch] = w.arrive("s", "t2", 9_000)
    assert isinstance(dispatch, DispatchTurn)
    assert dispatch.reason is Reason.HOME
    assert w.free("a") < 0


def test_a_newcomer_does_not_overtake_the_pool() -> None:
    w = World(make_policy("tao"), a=4_000)
    w.arrive("x", "x1", 2_000)
    w.arrive("large", "l1", 3_000)
    w.arrive("small", "s1", 100)  # would fit
    assert w.scheduler.view.waiting_sessions == 2


def test_candidates_that_fit_nowhere_are_not_planned() -> None:
    w = World(make_policy("tao"), a=6_000)
    w.arrive("x", "x1", 3_000)
    w.arrive("large", "l1", 4_000)
    assert w.wake() == []
    w.arrive("small", "s1", 1_000)
    [compute] = of_kind(w.after(1).wake(), ComputePlan)
    assert [c.session for c in compute.request.candidates] == ["small"]
    assert compute.request.free_tokens == {"a": 6_000 - 3_512 - 600}  # a tenth is left for growth


def test_who_is_served_by_nobody_takes_no_part_in_a_plan_however_long_it_waits() -> None:
    w = World(make_policy("tao"))
    w.join("a", 10_000, models=("x",))
    w.arrive("x", "x1", 9_000, model="x")
    w.arrive("other", "o1", 500, model="y")
    w.arrive("p", "p1", 2_000, model="x")
    w.after(100).end("x")
    w.finish("x1", 9_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    assert [c.session for c in compute.request.candidates] == ["p"]


def test_a_candidate_carries_the_triple_its_wait_and_its_last_home() -> None:
    w = World(make_policy("tao-paper"), a=20_000, b=5_000)
    w.arrive("s", "t1", 5_000)
    w.finish("t1", 5_000, 100)
    w.arrive("x", "x1", 2_000, pinned="a")
    w.resize("a", 8_000)
    assert [type(command) for command in w.wake()] == [InterruptSession]
    w.after(4).arrive("s", "t2", 5_400)
    w.end("x")
    w.after(6).finish("x1", 2_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    [candidate] = compute.request.candidates
    assert candidate.credit_tokens == {"a": 2_550}
    assert (candidate.ready, candidate.footprint_tokens, candidate.weight_tokens) == (1, 5_400, 5_912)
    assert (candidate.waited_seconds, candidate.home, candidate.eligible) == (6.0, "a", None)
    assert compute.request.solver == "dp"


@pytest.mark.parametrize("name", JOINT)
def test_an_overcommitted_replica_interrupts_and_the_session_restarts(name: str) -> None:
    w = World(make_policy(name), a=6_000)
    for session in ("p", "q"):
        w.arrive(session, f"{session}1", 2_000)
    w.finish("p1", 2_000, 100)
    w.progress("q1", 1_500)
    [interrupt] = of_kind(w.wake(), InterruptSession)
    assert interrupt.session == "p"
    w.arrive("p", "p2", 2_300)
    w.end("q")
    w.finish("q1", 2_000, 1_500)
    [compute] = of_kind(w.after(1).wake(), ComputePlan)
    [admit, _] = w.solve(compute)
    assert isinstance(admit, AdmitSession)
    assert (admit.session, admit.replica) == ("p", "a")


@pytest.mark.parametrize("name", [*JOINT, "tao-smallest-interrupted-first"])
def test_under_pressure_sessions_are_held_interrupted_and_planned(name: str) -> None:
    """The suite that all policies pass says nothing of whether a policy gates at all."""
    driver = VirtualDriver(make_policy(name), {"a": 20_000, "b": 12_000})
    run = driver.run(scripted_sessions(60, seed=2, every_seconds=0.5))
    reasons = {d.reason for d in run.dispatched.values()}
    assert {Reason.ROOM, Reason.HOME, Reason.PLANNED} <= reasons
    assert run.holds
    assert of_kind(run.commands, InterruptSession)


def test_explain_shows_the_triple_and_the_prediction() -> None:
    w = World(make_policy("tao"), a=20_000)
    w.arrive("s", "t1", 5_000)
    policy = make_policy("tao")
    told = policy.explain(w.scheduler.view, w.session("s"), 0.0)
    assert told["weight_tokens"] == 5_512
    assert "return" not in told
    w.finish("t1", 5_000, 100)
    told = policy.explain(w.scheduler.view, w.session("s"), 10.0)
    assert told["credit_tokens"] == {"a": 2_550}
    assert told["return"]["returns_in_seconds"] > 0  # type: ignore[index]  # 10 s are longer than the default of 5: as long again


# --- turn by turn ------------------------------------------------------------------------------------------------------


def test_round_robin_takes_the_replicas_in_turn_and_skips_those_that_are_down() -> None:
    w = World(make_policy("round-robin"), a=10_000, b=10_000, c=10_000)
    for n in range(4):
        w.arrive("s", f"t{n}")
        w.finish(f"t{n}")
    assert replicas_of(w) == ["a", "b", "c", "a"]
    w.lose("b")
    for n in range(4, 7):
        w.arrive("s", f"t{n}")
        w.finish(f"t{n}")
    assert replicas_of(w)[4:] == ["a", "c", "a"]


def test_sticky_stays_and_new_sessions_go_where_fewest_are() -> None:
    w = World(make_policy("sticky-least-loaded"), a=10_000, b=10_000)
    for session in ("p", "q", "r"):
        w.arrive(session, f"{session}1")
        w.finish(f"{session}1")
    assert replicas_of(w) == ["a", "b", "a"]
    w.arrive("q", "q2")
    assert replicas_of(w)[-1] == "b"
    w.end("p")
    w.end("r")
    w.arrive("s", "s1")
    assert replicas_of(w)[-1] == "a"
    w.lose("a")
    w.arrive("s", "s2")
    assert replicas_of(w)[-1] == "b"


@pytest.mark.parametrize("name", ["round-robin", "sticky-least-loaded"])
def test_turn_by_turn_nothing_is_held_admitted_or_planned_between_turns(name: str) -> None:
    w = World(make_policy(name), a=1_000)
    w.arrive("s", "t1", 800)
    w.arrive("r", "u1", 800)  # beyond the capacity: routers do not care
    assert w.free("a") == -600
    w.finish("t1", 800, 50)
    assert isinstance(w.session("s").phase, Acting)
    assert w.session("s").home is None
    assert w.free("a") == 200
    due = w.scheduler.next_wakeup()
    assert due == 600.0  # the idle bound, no planning
    told = w.scheduler.explain(SessionId("s"))
    assert told is not None
    assert told["values"]["weight_tokens"] == 850  # type: ignore[index]
