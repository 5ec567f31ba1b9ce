"""Measured survival: the curve, what flows into replicas, the credit made of both, and its calibration."""

import json
from itertools import pairwise

import pytest
from core_kit import World, of_kind
from hypothesis import given
from hypothesis import strategies as st

from tao.core.commands import DispatchTurn
from tao.core.events import TurnKind
from tao.core.ids import ReplicaId, SessionId
from tao.policies import make_policy
from tao.policies.creditcalibration import Calibration, CreditCalibration
from tao.policies.joint import JointPolicy
from tao.policies.survival import TURNOVERS, MeasuredSurvival, SurvivalCredit, SurvivalCurve, survival_of

CAPACITY = 100_000
A, S = ReplicaId("a"), SessionId("s")

# --- the curve ---------------------------------------------------------------------------------------------------------


def test_before_anything_is_known_it_falls_from_all_to_nothing_over_one_cache() -> None:
    curve = SurvivalCurve()
    assert curve.share(0.0) == pytest.approx(0.99)
    assert curve.share(0.45) == pytest.approx(0.55)
    assert curve.share(1.1) == curve.share(100.0) == 0.0
    assert curve.returns == 0


def test_it_learns_what_returns_find() -> None:
    curve = SurvivalCurve()
    for _ in range(200):
        curve.learn(0.3, 1.0)
        curve.learn(0.7, 0.2)
        curve.learn(3.0, 0.0)
    assert curve.share(0.28) == pytest.approx(1.0, abs=0.03)
    assert curve.share(0.65) == pytest.approx(0.2, abs=0.02)
    assert curve.share(0.01) >= curve.share(0.28)
    assert curve.returns == 600


def test_it_follows_a_load_that_changes() -> None:
    curve = SurvivalCurve()
    for _ in range(500):
        curve.learn(0.45, 1.0)
    for _ in range(100):
        curve.learn(0.45, 0.0)
    assert curve.share(0.45) < 0.1


@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 1)), max_size=60))
def test_it_never_rises_and_stays_within_nothing_and_all(returns: list[tuple[float, float]]) -> None:
    curve = SurvivalCurve()
    for turnover, share in returns:
        curve.learn(turnover, share)
    shares = [curve.share(turnover) for turnover in (0.0, *TURNOVERS, 9.0)]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(shares))
    assert [turnover for turnover, _ in curve.points()] == list(TURNOVERS)


# --- through the core --------------------------------------------------------------------------------------------------


def world() -> tuple[World, MeasuredSurvival]:
    policy = make_policy("tao-survival")
    assert isinstance(policy, JointPolicy)
    policy.survival.judged()
    return World(policy, a=CAPACITY), policy.survival


def flow(w: World, tokens: int, name: str) -> None:
    """Another session computes so many tokens."""
    w.arrive(name, f"{name}-turn", tokens)
    w.finish(f"{name}-turn", tokens, 0, cached_tokens=0)
    w.end(name)


def credit(w: World, survival: MeasuredSurvival) -> int:
    return SurvivalCredit(survival).tokens(w.session("s"), w.at).get(A, 0)


def test_time_alone_costs_nothing_and_inflow_does() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    fresh = credit(w, survival)
    assert fresh == pytest.approx(9_900)
    assert credit(w.after(300), survival) == fresh
    flow(w, 45_000, "other")
    assert credit(w, survival) == pytest.approx(5_500, rel=0.02)
    flow(w, 70_000, "another")
    assert credit(w, survival) == 0


def test_what_was_cached_flows_in_no_second_time() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    before = credit(w, survival)
    w.arrive("other", "o1", 45_000)
    w.finish("o1", 45_000, 0, cached_tokens=45_000)  # all of it was there already
    assert credit(w, survival) == before


def test_what_runs_counts_from_the_start() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.arrive("other", "o1", 45_000)
    assert credit(w, survival) == pytest.approx(5_500, rel=0.02)


def test_a_return_teaches_what_was_left_and_how_well_it_was_foretold() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    flow(w, 44_000, "other")
    w.after(20).arrive("s", "t2", 12_000)
    w.finish("t2", 12_000, 0, cached_tokens=10_000)
    (curve,) = survival.curves.values()
    assert curve.returns == 1
    assert curve.share(0.44) > 0.55
    measured, clock = (survival.judged().by_name[name] for name in ("survival", "half-life"))
    assert (measured.returns, measured.prefix_tokens) == (1, 10_000)
    assert measured.error_tokens == pytest.approx(4_500, rel=0.01)
    assert clock.error_tokens == pytest.approx(7_500)  # two half-lives
    json.dumps(survival.shown())


def test_nothing_is_judged_before_somebody_asks() -> None:
    policy = make_policy("tao")
    assert isinstance(policy, JointPolicy)
    w = World(policy, a=CAPACITY)
    for number in (1, 2, 3):
        w.arrive("s", f"t{number}", 10_000)
        w.finish(f"t{number}", 10_000, 0, cached_tokens=0)
        if number == 2:
            assert policy.survival.judged().by_name == {}
    assert policy.survival.judged().by_name["survival"].returns == 1
    assert sum(curve.returns for curve in policy.survival.curves.values()) == 2


def test_a_turn_of_which_nothing_came_leaves_all_as_it_was() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    flow(w, 45_000, "other")
    before = credit(w, survival)
    w.after(1).arrive("s", "t2", 12_000)
    w.fail("t2")
    assert credit(w, survival) == before == pytest.approx(5_500, rel=0.02)
    w.arrive("other", "o1", 30_000)
    w.leave("o1")
    w.stopped("o1")
    assert credit(w, survival) == before


def test_what_another_replica_took_over_has_not_flowed_in() -> None:
    w, survival = world()
    w.join("b", CAPACITY)
    (sent,) = of_kind(w.arrive("s", "t1", 10_000), DispatchTurn)
    w.fail("t1", retryable=True)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    (other,) = {"a", "b"} - {sent.replica}
    assert survival._inflow._inflow_tokens == {sent.replica: 0, other: 10_000}


def test_what_another_took_over_from_a_removed_replica_leaves_nothing_of_it() -> None:
    w, survival = world()
    w.join("b", CAPACITY)
    (sent,) = of_kind(w.arrive("s", "t1", 10_000), DispatchTurn)
    w.remove(sent.replica)
    w.fail("t1", retryable=True)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    (other,) = {"a", "b"} - {sent.replica}
    assert survival._inflow._inflow_tokens == {other: 10_000}


def test_what_the_engine_does_not_tell_teaches_nothing() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.arrive("s", "t2", 12_000)
    w.finish("t2", 12_000, 0, cached_tokens=None)
    w.arrive("s", "t3", 13_000)
    w.fail("t3")
    assert survival.curves == {}
    assert survival.judged().by_name == {}


def test_a_flush_a_reset_and_an_end_are_forgotten() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.flush("a")
    w.arrive("s", "t2", 12_000)
    w.finish("t2", 12_000, 0, cached_tokens=0)  # nothing was expected
    assert survival.curves == {}
    w.arrive("s", "t3", 3_000, TurnKind.RESET)
    w.finish("t3", 3_000, 0, cached_tokens=0)
    w.arrive("s", "t4", 3_000)
    w.finish("t4", 900, 0, cached_tokens=0)  # a history that was cut, and nobody said so
    assert survival.curves == {}
    w.end("s")
    w.arrive("s", "t5", 3_000)
    w.finish("t5", 3_000, 0, cached_tokens=0)
    assert survival.curves == {}


def test_a_removed_replica_is_forgotten_and_what_still_runs_there_teaches_nothing() -> None:
    w, survival = world()
    w.join("b", CAPACITY)
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.arrive("s", "t2", 12_000)
    w.finish("t2", 12_000, 0, cached_tokens=10_000)
    assert list(survival.curves) == ["a"]
    w.arrive("s", "t3", 13_000)
    w.remove("a")
    assert survival.curves == {}
    w.finish("t3", 13_000, 0, cached_tokens=12_000)
    assert survival.curves == {}
    assert survival.shown()["survival"] == {}
    w.join("a", CAPACITY)
    w.drain("b")
    w.arrive("s", "t4", 14_000)
    w.finish("t4", 14_000, 0, cached_tokens=0)
    w.arrive("s", "t5", 15_000)
    w.finish("t5", 15_000, 0, cached_tokens=14_000)
    assert survival.curves[A].returns == 1  # an engine of the same name begins anew


def test_hundreds_of_replicas_that_come_and_go_leave_nothing() -> None:
    w, survival = world()
    for number in range(200):
        w.join(f"pod-{number}", CAPACITY)
        for turn in (1, 2):
            w.arrive(f"s{number}", f"t{number}.{turn}", 10_000)
            w.finish(f"t{number}.{turn}", 10_000, 0, cached_tokens=9_000)
        w.remove("a" if number == 0 else f"pod-{number - 1}")
        w.end(f"s{number}")
    assert len(survival.curves) <= 1
    assert len(survival._inflow._inflow_tokens) <= 1
    assert len(survival._capacities) <= 1


def test_what_kv_events_tell_needs_no_expectation() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    flow(w, 90_000, "other")
    w.watch("a", "s", 9_984)
    assert credit(w, survival) == 9_984


def test_what_kv_events_told_is_compared_with_what_was_found_too() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.watch("a", "s", 4_000)
    w.arrive("s", "t2", 12_000)
    w.finish("t2", 12_000, 0, cached_tokens=3_900)
    told = survival.judged().by_name["kv-events"]
    assert told.returns == 1
    assert told.error_tokens == pytest.approx(100.0)
    w.arrive("s", "t3", 13_000)
    w.finish("t3", 13_000, 0, cached_tokens=0)
    assert told.returns == 1  # nothing was told of it since


def test_evidence_without_a_finished_turn_counts_in_full() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.first_token("t1")
    w.leave("t1")
    w.stopped("t1")
    assert credit(w, survival) == pytest.approx(9_900)


def test_what_kv_events_told_of_a_turn_that_failed_is_not_believed_for_ever() -> None:
    w, survival = world()
    w.arrive("s", "t1", 48_000)
    w.watch("a", "s", 48_000)
    w.after(1).fail("t1")
    flow(w, 3_000, "before")
    w.after(5).lose_watch("a")
    assert credit(w, survival) == pytest.approx(48_000, rel=0.02)
    for number in range(40):
        flow(w, 20_100, f"other{number}")
    assert credit(w, survival) == 0


def test_what_is_told_after_a_turn_has_failed_ages_from_the_loss_of_the_watch_on() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.fail("t1")
    w.watch("a", "s", 10_000)
    flow(w, 30_000, "before")
    w.lose_watch("a", "s")
    assert credit(w, survival) == pytest.approx(9_900)
    flow(w, 45_000, "after")
    assert credit(w, survival) == pytest.approx(5_500, rel=0.02)


def test_a_lost_watch_makes_nothing_younger_than_the_last_turn() -> None:
    w, survival = world()
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.watch("a", "s", 10_000)
    flow(w, 45_000, "other")
    w.lose_watch("a")
    assert credit(w, survival) == pytest.approx(5_500, rel=0.02)


def test_a_session_that_alternates_between_two_models_teaches_nothing_false() -> None:
    w, survival = world()
    for number in range(8):
        w.arrive("s", f"t{number}", 10_000, model=("base", "adapter")[number % 2])
        w.finish(f"t{number}", 10_000, 0, cached_tokens=0)
    assert survival.curves == {}
    w.arrive("s", "again", 11_000, model="adapter")
    w.finish("again", 11_000, 0, cached_tokens=10_000)
    assert survival.curves[A].returns == 1
    assert survival.curves[A].share(0.0) > 0.99


def test_a_turn_of_an_earlier_context_that_ends_late_makes_nothing_younger() -> None:
    w, survival = world()
    w.arrive("s", "old", 10_000, model="base")
    w.arrive("s", "new", 10_000, model="adapter")
    w.finish("new", 10_000, 0, cached_tokens=0)
    w.after(1)
    flow(w, 45_000, "other")
    before = credit(w, survival)
    w.after(1).finish("old", 10_000, 0, cached_tokens=0)
    assert credit(w, survival) == before


def test_only_policies_that_measure_have_it() -> None:
    assert survival_of(make_policy("tao")) is not None
    assert survival_of(make_policy("round-robin")) is None


# --- calibration -------------------------------------------------------------------------------------------------------


def test_a_forecast_that_is_right_on_average_has_no_calibration_error() -> None:
    known = Calibration()
    for found in (0.0, 1.0) * 50:
        known.add(1_000, 0.5, found)
    assert known.calibration_error == pytest.approx(0.0)
    assert known.mean_squared_error == pytest.approx(0.25)
    assert known.mean_error == pytest.approx(0.5)


def test_a_forecast_that_is_always_wrong_by_as_much() -> None:
    calibration = CreditCalibration()
    for _ in range(10):
        calibration.returned(100, {"high": 1.0, "low": 0.0}, 0.7)
    assert calibration.by_name["high"].calibration_error == pytest.approx(0.3)
    assert calibration.by_name["low"].calibration_error == pytest.approx(0.7)
    assert Calibration().calibration_error == 0.0
