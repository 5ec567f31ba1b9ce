"""A session that is overdue beyond belief gives way when others wait; what it was away for is told once."""

from core_kit import World, of_kind
from watched import Watched

from tao.core import SchedulerSettings
from tao.core.commands import ComputePlan, DispatchTurn, Interruption, InterruptSession, RefuseTurn
from tao.core.facts import ToolEnded, ToolStarted
from tao.core.phases import Acting, Away
from tao.policies import make_policy


def overdue(policy: str = "tao", settings: SchedulerSettings | None = None) -> tuple[World, Watched]:
    """Session s vanished in a tool on a; x waits for its room; two minutes later."""
    watched = Watched(make_policy(policy))
    w = World(watched, settings, a=10_000)
    w.arrive("s", "t1", 5_000)
    w.finish("t1", 5_000, 100)
    w.arrive("x", "x1", 8_000)
    w.after(120)
    return w, watched


def told(watched: Watched) -> list[tuple[str, float]]:
    return [(f.session, f.duration_seconds) for f in watched.facts if isinstance(f, ToolEnded)]


def test_it_gives_way_and_the_one_that_waits_gets_its_room() -> None:
    w, _ = overdue()
    interrupt, compute = w.wake()
    assert interrupt == InterruptSession("s", "a", Interruption.LAPSED)  # type: ignore[arg-type]
    assert w.session("s").phase == Away(120.0, w.session("s").phase.tools, 0.0)  # type: ignore[union-attr]
    assert isinstance(compute, ComputePlan)
    assert [d.turn for d in of_kind(w.solve(compute), DispatchTurn)] == ["x1"]
    assert w.reserved("a") == 8_512


def test_while_nobody_waits_it_keeps_its_place() -> None:
    w, _ = overdue()
    w.leave("x1")
    assert w.wake() == []
    assert w.session("s").home == "a"


def test_the_paper_believes_in_it_until_the_idle_bound() -> None:
    w, _ = overdue("tao-paper")
    w.wake()
    assert w.session("s").home == "a"


def test_one_in_the_pool_lapses_too() -> None:
    w, _ = overdue()
    w.lose("a")
    w.join("a", 10_000)
    assert "s" in w.scheduler.view.pool
    assert not of_kind(w.wake(), InterruptSession)  # it had no admission to lose
    assert isinstance(w.session("s").phase, Away)


def test_coming_back_after_all_tells_how_long_it_took() -> None:
    w, watched = overdue()
    w.wake()
    w.after(30).arrive("s", "t2", 5_200)
    assert told(watched) == [("s", 150.0)]


def test_its_tool_that_is_seen_to_end_makes_it_a_candidate_again() -> None:
    w, watched = overdue()
    w.wake()
    w.after(10).tool_finished("s")
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    assert (phase.since, phase.home, phase.finished_at) == (0.0, None, 130.0)
    assert "s" in w.scheduler.view.pool
    w.after(10).arrive("s", "t2", 5_200)
    assert told(watched) == [("s", 130.0)]


def test_one_whose_tool_had_ended_before_it_lapsed_is_not_told_again() -> None:
    w, watched = overdue()
    w.tool_finished("s")
    w.after(60).wake()
    assert w.session("s").phase == Away(180.0, w.session("s").phase.tools)  # type: ignore[union-attr]
    w.arrive("s", "t2", 5_200)
    assert told(watched) == [("s", 120.0)]


def test_one_that_is_turned_away_twice_is_told_once() -> None:
    w, watched = overdue(settings=SchedulerSettings(held_turns_max=1))
    w.wake()
    [refused] = w.after(5).arrive("s", "t2", 5_200)
    assert isinstance(refused, RefuseTurn)
    assert w.session("s").phase == Away(125.0)
    w.after(5).arrive("s", "t3", 5_200)
    assert told(watched) == [("s", 125.0)]
    assert len([f for f in watched.facts if isinstance(f, ToolStarted)]) == 1
