"""session-fcfs, aimd and progress-ttl: admission rules and formulas, with numbers worked out by hand."""

from math import erf, exp, log, sqrt

import pytest
from core_kit import World, of_kind

from tao.core.commands import DispatchTurn, Interruption, InterruptSession, Reason
from tao.core.ids import ReplicaId, SessionId
from tao.policies.baselines.aimd import Aimd, WindowLaw
from tao.policies.baselines.progress_ttl import Progress, ProgressTtl, RollingMean
from tao.policies.baselines.session_fcfs import SessionFcfs
from tao.policies.baselines.time_to_live import (
    GapHistory,
    LogNormal,
    decode_tokens_per_second,
    prefill_impact_seconds,
    prefill_seconds,
    time_to_live_seconds,
)


def settle(world: World) -> None:
    """Wake the core at the next planning points of the coming second."""
    until = world.at + 1.0
    while (due := world.scheduler.next_wakeup()) is not None and due <= until:
        world.at = max(world.at, due)
        world.wake()


# --- session-fcfs -------------------------------------------------------------------------------------------------------


def test_fcfs_admits_to_the_roomiest_and_holds_up_all_behind_the_first_that_does_not_fit() -> None:
    w = World(SessionFcfs(), a=10_000, b=8_000)
    assert [d.replica for d in of_kind(w.arrive("s1", "t1", 6_000), DispatchTurn)] == ["a"]
    assert [d.replica for d in of_kind(w.arrive("s2", "t2", 6_000), DispatchTurn)] == ["b"]
    assert of_kind(w.arrive("big", "t3", 7_000), DispatchTurn) == []
    assert of_kind(w.arrive("small", "t4", 500), DispatchTurn) == []
    settle(w)
    assert (w.session("big").home, w.session("small").home) == (None, None)
    w.finish("t1", 6_000, 10)
    w.end("s1")
    settle(w)
    assert (w.session("big").home, w.session("small").home) == ("a", "a")


def test_fcfs_keeps_an_idle_sessions_place() -> None:
    w = World(SessionFcfs(), a=10_000)
    w.arrive("s1", "t1", 6_000)
    w.finish("t1", 6_000, 100)
    assert w.reserved("a") == 6_100
    [dispatch] = of_kind(w.after(60.0).arrive("s1", "t2", 7_000), DispatchTurn)
    assert dispatch.reason is Reason.HOME


def test_fcfs_interrupts_who_came_last_and_lets_who_came_first_back_first() -> None:
    w = World(SessionFcfs(), a=10_000)
    for number, session in enumerate(("s1", "s2", "s3")):
        w.after(1.0).arrive(session, f"t{number}", 3_000)
        w.finish(f"t{number}", 3_000, 100)
    w.arrive("s1", "u1", 5_500)
    settle(w)
    assert [c.session for c in of_kind(w.log, InterruptSession)] == ["s3"]
    w.arrive("s2", "u2", 4_500)
    assert w.free("a") == 0
    w.after(1.0).arrive("late", "x1", 4_000)
    w.after(1.0).arrive("s3", "u3", 4_000)
    settle(w)
    assert (w.session("late").home, w.session("s3").home) == (None, None)
    w.finish("u2", 4_500, 0)
    w.end("s2")
    settle(w)
    assert (w.session("late").home, w.session("s3").home) == (None, "a")


# --- aimd ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "hit_rate", "expected"),
    [
        (0.19, 0.0, 12.0),  # room: up by the step, whatever the hit rate
        (0.20, 0.9, 10.0),  # between the thresholds
        (0.51, 0.2, 10.0),  # full, but the cache copes
        (0.51, 0.19, 5.0),  # full, and it does not
        (0.51, None, 10.0),  # nothing is known
        (0.50, 0.0, 10.0),
    ],
)
def test_the_window_grows_by_a_step_and_shrinks_by_a_factor(
    usage: float, hit_rate: float | None, expected: float
) -> None:
    law = WindowLaw(step=2.0, factor=0.5, usage_low=0.2, usage_high=0.5, hit_rate_low=0.2)
    assert law.next(10.0, usage, hit_rate) == expected


def test_the_window_has_bounds() -> None:
    law = WindowLaw(usage_low=0.2, usage_high=0.5, hit_rate_low=0.2, window_max=11.0)
    assert law.next(10.0, 0.0, None) == 11.0
    assert law.next(1.5, 0.9, 0.0) == 1.0


def test_aimd_admits_a_windows_worth_of_sessions_whatever_their_size() -> None:
    w = World(Aimd(window_first=2.0), a=1_000, b=1_000)
    sent = [of_kind(w.arrive(f"s{n}", f"t{n}", 900), DispatchTurn) for n in range(5)]
    assert [[d.replica for d in dispatches] for dispatches in sent] == [["a"], ["b"], ["a"], ["b"], []]
    assert w.free("a") == -800


def test_aimd_lets_sessions_under_way_in_before_new_ones() -> None:
    law = WindowLaw(usage_low=0.0)
    w = World(Aimd(law, window_first=1.0), a=100_000)
    w.arrive("s1", "t1")
    w.arrive("new", "n1")
    w.fail("t1")  # s1 is away and holds nothing: the next planning point lets the new one in
    settle(w)
    assert w.session("new").home == "a"
    w.arrive("other", "o1")
    w.finish("n1")
    w.fail("x")  # unknown: ignored
    w.arrive("new", "n2", 1_200)
    w.arrive("s1", "t2", 1_200)
    w.finish("n2", 1_200, 10)
    w.end("new")
    settle(w)
    assert (w.session("s1").home, w.session("other").home) == (None, "a")  # s1's first turn never finished


def test_aimd_is_not_woken_by_places_that_those_who_wait_cannot_use() -> None:
    w = World(Aimd(WindowLaw(usage_low=0.0), window_first=1.0))
    w.join("x", 100_000, models=("x",))
    w.join("y", 100_000, models=("y",))
    w.arrive("s1", "t1", model="x")
    w.arrive("s2", "t2", model="x")
    w.wake()
    assert w.scheduler.next_wakeup() == 1.0, "the next interval: the place on y is of no use"
    w.finish("t1")
    w.end("s1")
    assert w.scheduler.next_wakeup() == w.at
    w.wake()
    assert w.session("s2").home == "x"


def test_aimd_takes_the_place_of_a_session_beyond_the_window_at_its_tool_boundary() -> None:
    law = WindowLaw(factor=0.5, usage_low=0.1, usage_high=0.5, hit_rate_low=0.9)
    w = World(Aimd(law, window_first=2.0), a=10_000)
    w.arrive("s1", "t1", 4_000)
    w.arrive("s2", "t2", 4_000)
    w.arrive("s2", "t3", 4_100)  # parallel
    w.finish("t3", 4_100, 10, cached_tokens=0)
    w.after(1.0).wake()  # in use: over half; hit rate 0: the window is 1
    assert of_kind(w.finish("t1", 4_000, 10), InterruptSession) == [
        InterruptSession(SessionId("s1"), ReplicaId("a"), Interruption.GAVE_WAY)
    ]
    assert w.session("s1").home is None
    assert of_kind(w.finish("t2", 4_000, 10), InterruptSession) == []
    assert w.session("s2").home == "a"


def test_a_lost_replica_starts_with_a_fresh_window() -> None:
    w = World(Aimd(window_first=2.0), a=100_000)
    w.arrive("s", "t")
    w.after(1.0).wake()
    told = w.scheduler.explain(SessionId("s"))
    assert told is not None
    assert told["values"]["windows"] == {"a": 4.0}  # type: ignore[index]
    w.lose("a")
    w.join("a", 100_000)
    told = w.scheduler.explain(SessionId("s"))
    assert told is not None
    assert told["values"]["windows"] == {"a": 2.0}  # type: ignore[index]


# --- progress-ttl: formulas ---------------------------------------------------------------------------------------------


def test_the_fitted_costs() -> None:
    assert prefill_seconds(0) == pytest.approx(0.0660)
    assert prefill_seconds(10_000) == pytest.approx(0.0660 + 0.570 + 0.441)
    assert prefill_impact_seconds(10_000) == pytest.approx(1.85 * 1.077)
    assert decode_tokens_per_second(8, 100_000) == pytest.approx(8 / (0.010635 + 0.003352 + 0.0142))


def test_the_log_normal_parts() -> None:
    gaps = LogNormal(mean=log(2.0), spread=0.5)
    assert gaps.share_below(2.0) == pytest.approx(0.5)
    assert gaps.share_below(0.0) == gaps.mean_below(0.0) == 0.0
    whole = 2.0 * exp(0.125)
    assert gaps.mean_below(2.0) == pytest.approx(whole * 0.5 * (1 + erf(-0.5 / sqrt(2))))
    assert gaps.mean_below(1e9) == pytest.approx(whole)


def test_a_log_normal_is_fitted_by_the_moments_of_the_logarithms() -> None:
    fitted = LogNormal.fitted([1.0, exp(2.0)])
    assert [fitted.mean, fitted.spread] == pytest.approx([1.0, 1.0])
    assert LogNormal.fitted([3.0, 3.0]).spread > 0.0


def test_the_time_to_live_is_worth_its_wait_or_nothing() -> None:
    short = LogNormal(mean=log(0.5), spread=0.5)
    long = LogNormal(mean=log(100.0), spread=0.5)
    assert time_to_live_seconds(long, impact_seconds=2.0) == 0.0  # it will not be back in time
    assert time_to_live_seconds(short, impact_seconds=20.0) > 1.0
    assert time_to_live_seconds(short, impact_seconds=20.0) <= 10.0
    assert time_to_live_seconds(short, impact_seconds=0.6) <= 0.6  # never longer than it saves


def test_the_time_to_live_is_the_best_of_its_grid() -> None:
    gaps, impact_seconds = LogNormal(mean=log(0.05), spread=3.0), 2.0

    def gain(d: float) -> float:
        below = gaps.share_below(d)
        return below * impact_seconds - gaps.mean_below(d) - d * (1.0 - below)

    best = time_to_live_seconds(gaps, impact_seconds)
    assert 0.0 < best < impact_seconds
    assert all(gain(best) >= gain(impact_seconds * step / 32) for step in range(33))


def test_the_history_keeps_the_last_gaps() -> None:
    history = GapHistory(gaps_max=2)
    assert history.distribution() is None
    for seconds in (1_000.0, 1.0, 1.0):
        history.add(seconds)
    fitted = history.distribution()
    assert fitted is not None
    assert fitted.mean == pytest.approx(0.0)


def test_a_rolling_mean_keeps_the_newest_hundred() -> None:
    mean = RollingMean()
    assert mean.value == 0.0
    for value in [1_000] * 50 + [2] * 100:
        mean.add(value)
    assert mean.value == 2.0


def test_the_growth_reserve() -> None:
    progress = Progress()
    w = World(ProgressTtl(), a=100_000)
    w.arrive("s", "t1")
    session = w.session("s")
    for footprint_tokens in (1_000, 1_400, 2_000):  # grows by 400 and 600 in three rounds
        session.footprint_tokens = footprint_tokens
        progress.round_ended(session, output_tokens=50)
    assert progress.target_rounds == 1
    progress.stay_ended(session.id)
    assert progress.target_rounds == 6  # twice the mean of 3 rounds
    assert progress.growth_reserve_tokens([]) == 500 * 6
    assert progress.growth_reserve_tokens([session]) == 500 * (6 + 6)  # its rounds start afresh
    session.footprint_tokens = 2_500
    progress.round_ended(session, output_tokens=50)
    assert progress.growth_reserve_tokens([session]) == 500 * (6 + 5)
    for _ in range(30):
        progress.round_ended(session, output_tokens=50)
    progress.stay_ended(session.id)
    assert progress.target_rounds == 14  # 2 * mean(3, 31), clamped
    session.footprint_tokens = 1_000


# --- progress-ttl on the core -------------------------------------------------------------------------------------------


def test_an_idle_session_is_interrupted_when_its_time_is_over_and_somebody_waits() -> None:
    w = World(ProgressTtl(), a=10_000)
    w.arrive("s", "t1", 6_000)
    w.finish("t1", 6_000, 100)
    told = w.scheduler.explain(SessionId("s"))
    assert told is not None
    # No gap is known yet: the bound min(10 s, C), C = 1.85 (0.0660 + 0.0570 * 6.1 + 0.00441 * 6.1^2).
    assert told["values"]["time_to_live_seconds"] == pytest.approx(1.0689, abs=1e-3)  # type: ignore[index]
    w.after(0.5).arrive("new", "n1", 5_000)
    settle(w)
    w.after(0.0)
    assert w.session("s").home is None
    assert w.session("new").home == "a"
    [gone] = of_kind(w.log, InterruptSession)
    assert gone.session == "s"


def test_under_pressure_the_session_whose_turn_ends_gives_way() -> None:
    w = World(ProgressTtl(), a=10_000)
    w.arrive("s", "t1", 4_000)
    w.arrive("r", "u1", 4_000)
    w.progress("u1", 3_000)
    assert w.free("a") < 0
    assert of_kind(w.finish("t1", 4_000, 100), InterruptSession) == [
        InterruptSession(SessionId("s"), ReplicaId("a"), Interruption.GAVE_WAY)
    ]
    assert of_kind(w.finish("u1", 4_000, 3_000), InterruptSession) == []
    assert w.session("r").home == "a"


def test_nobody_is_interrupted_while_nobody_waits() -> None:
    w = World(ProgressTtl(), a=10_000)
    w.arrive("s", "t1", 6_000)
    w.finish("t1", 6_000, 100)
    w.after(100.0)
    settle(w)
    [dispatch] = of_kind(w.arrive("s", "t2", 6_500), DispatchTurn)
    assert dispatch.reason is Reason.HOME


def test_room_to_grow_is_set_aside() -> None:
    w = World(ProgressTtl(), a=20_000)
    w.arrive("s", "t1", 4_000)
    w.finish("t1", 4_000, 100)
    w.arrive("s", "t2", 6_000)
    w.finish("t2", 6_000, 100)  # grew by 2,000; the target is 1 round, s has had 2
    assert of_kind(w.arrive("new", "n1", 11_800), DispatchTurn) == []  # 20,000 - 6,200 - 2,000 < 11,900
    assert of_kind(w.arrive("next", "n2", 100), DispatchTurn) == []  # others wait
    w2 = World(ProgressTtl(), a=20_000)
    w2.arrive("s", "t1", 4_000)
    w2.finish("t1", 4_000, 100)
    w2.arrive("s", "t2", 6_000)
    w2.finish("t2", 6_000, 100)
    assert of_kind(w2.arrive("new", "n1", 11_700), DispatchTurn)


def test_a_full_replica_is_left_only_for_one_with_headroom() -> None:
    w = World(ProgressTtl(), a=10_000, b=6_000)
    w.arrive("s", "s1", 3_000)
    w.finish("s1", 3_000, 0)
    w.arrive("r", "r1", 2_000)
    assert (w.session("s").home, w.session("r").home) == ("a", "b")
    w.arrive("q", "q1", 6_500)  # to a or b by fewest sessions: a tie, and a has 6,900
    assert w.session("q").home == "a"
    w.progress("q1", 1_000)  # a is overcommitted; s gives way when its time is over
    w.after(2.0)
    settle(w)
    assert w.session("s").home is None
    w.arrive("s", "s2", 3_200)
    settle(w)
    assert w.session("s").home is None  # 3,300 * 1.2 = 3,960 > 3,900 on b
    w.finish("r1", 2_000, 0)
    w.end("r")
    settle(w)
    assert w.session("s").home == "b"


def test_who_waited_too_long_is_admitted_by_force() -> None:
    w = World(ProgressTtl(), a=10_000)
    w.arrive("s", "s1", 9_000)
    w.arrive("new", "n1", 8_000)
    for _ in range(29):
        w.after(1.0).wake()
    assert w.session("new").home is None
    w.after(1.5).wake()
    assert w.session("new").home == "a"
    assert of_kind(w.log, DispatchTurn)[-1].reason is Reason.RULE
