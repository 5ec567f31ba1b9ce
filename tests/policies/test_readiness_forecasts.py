"""Readiness on distributions: the rule of chance, probes past the end, the end of belief, learning and calibration."""

import pytest
from policy_kit import acting_session

from tao.core.events import ToolCall
from tao.core.facts import SessionClosed, ToolEnded, ToolStarted
from tao.core.ids import SessionId
from tao.policies.credit import HalfLifeCredit
from tao.policies.farewells import RETURNS_MIN
from tao.policies.interruption import LongestAwayFirst
from tao.policies.readiness import NoReadiness, ReadyRule, ToolReadiness
from tao.policies.returns import Absence, BackoffHistogram, PointForecast, ReturnCalibration
from tao.policies.returns.calibration import CLASSES_MAX

BASH = ToolCall("bash")
ID = SessionId("s")


def taught(*durations: float, tools: tuple[ToolCall, ...] = (BASH,)) -> ToolReadiness:
    readiness = ToolReadiness(BackoffHistogram())
    for seconds in durations:
        readiness.observe(ToolEnded(0.0, ID, "", tools, seconds))
    return readiness


def test_quick_tools_are_ready_from_the_start_and_slow_ones_near_their_end() -> None:
    session = acting_session()
    assert taught(*[0.2] * 50).ready(session, 0.0) == 1
    slow = taught(*[30.0] * 50)
    assert [slow.ready(session, at) for at in (0.0, 5.0, 15.0)] == [0, 0, 0]
    assert any(slow.ready(session, 28.0 + tenth / 10) for tenth in range(80))


def test_who_is_as_likely_quick_as_slow_is_not_ready_once_it_is_not_quick() -> None:
    mixed = taught(*[0.2, 0.2, 0.2, 60.0] * 20)
    session = acting_session()
    assert mixed.ready(session, 0.0) == 1
    assert [mixed.ready(session, at) for at in (2.0, 5.0, 20.0)] == [0, 0, 0]


def test_the_rule_probes_past_the_end_at_doubling_distances() -> None:
    rule, forecast = ReadyRule(), PointForecast(5.0, "told")
    ready = [tenth / 10 for tenth in range(1_000) if rule.holds(forecast, tenth / 10)]
    starts = [at for at in ready if round(at - 0.1, 1) not in ready]
    assert starts == [4.0, 7.0, 11.0, 19.0, 35.0]
    assert ready[-1] == 35.0


def test_while_little_is_known_belief_ends_fifteen_seconds_after_a_conservative_duration() -> None:
    readiness = taught(*[10.0] * (RETURNS_MIN - 1))
    session = acting_session()
    assert not readiness.lapsed(session, 24.0)
    assert readiness.lapsed(session, 30.0)


def test_who_stays_away_longer_than_anybody_who_came_back_is_over() -> None:
    readiness = taught(*[10.0] * 50)
    session = acting_session()
    assert not readiness.lapsed(session, 9.0)
    assert readiness.lapsed(session, 14.0)


def test_where_some_stay_away_for_long_the_lease_is_the_bound() -> None:
    readiness = taught(*[200.0] * 10, *[10.0] * 40)
    session = acting_session()
    assert not readiness.lapsed(session, 24.0)
    assert readiness.lapsed(session, 30.0)


def test_where_clients_say_goodbye_a_tool_is_believed_in_for_thirty_seconds() -> None:
    readiness = taught(*[10.0] * 50)
    session = acting_session()
    readiness.observe(SessionClosed(0.0, ID, session.tenant, told=True))
    assert not readiness.lapsed(session, 39.0)
    assert readiness.lapsed(session, 45.0)
    assert readiness.lapsed(acting_session(finished_at=10.0), 25.1), (
        "over, and nobody asks on: that is another matter"
    )


def test_a_human_is_not_believed_in_for_longer_than_a_default_tool() -> None:
    readiness = taught(*[900.0] * 20, tools=())
    session = acting_session(tools=())
    assert readiness.away_seconds(session, 1.0) > 500.0
    assert not readiness.lapsed(session, 7.0)
    assert readiness.lapsed(session, 7.1)


def test_who_is_quick_to_ask_again_is_missed_soon() -> None:
    readiness = taught(*[0.5] * (RETURNS_MIN - 1), tools=())
    session = acting_session(tools=())
    assert not readiness.lapsed(session, 2.4)
    assert readiness.lapsed(session, 4.0)
    well_known = taught(*[0.5] * 20, tools=())
    assert not well_known.lapsed(session, 1.0)
    assert well_known.lapsed(session, 1.1)


def test_the_forecast_of_an_absence_is_kept_and_made_anew() -> None:
    readiness = ToolReadiness(BackoffHistogram(), refresh_seconds=10.0)
    readiness.observe(ToolStarted(0.0, ID, "", (BASH,)))
    for _ in range(50):
        readiness.observe(ToolEnded(1.0, SessionId("other"), "", (BASH,), 300.0))
    session = acting_session()
    assert readiness.explain(session, 2.0)["source"] == "default"
    assert readiness.explain(session, 2.0)["evidence_seconds_ago"] == 2.0
    assert readiness.explain(session, 11.0)["source"] == "history of this tenant"
    assert readiness.explain(session, 11.0)["evidence_seconds_ago"] == 0.0


def test_a_session_that_closes_while_away_teaches_at_least_this_long() -> None:
    readiness = taught(*[1.0, 300.0] * 5)
    before = readiness.predictor.predict(Absence((BASH,))).survival(100.0)
    for _ in range(5):
        readiness.observe(ToolStarted(0.0, ID, "", (BASH,)))
        readiness.observe(SessionClosed(100.0, ID))
    assert readiness.predictor.predict(Absence((BASH,))).survival(100.0) > before + 0.05
    readiness.observe(SessionClosed(100.0, ID))  # nothing was running


def test_predicted_is_compared_with_actual() -> None:
    readiness = ToolReadiness(BackoffHistogram())
    calibration = readiness.judged()
    for _ in range(30):
        readiness.observe(ToolStarted(0.0, ID, "", (BASH,)))
        readiness.observe(ToolEnded(2.0, ID, "", (BASH,), 2.0))
    known = calibration.by_tool["bash"]
    assert known.calls == 30
    assert known.within_half_second >= 25
    assert known.absolute_error_seconds == pytest.approx(3.0, abs=12.0)
    assert known.to_json()["coverage"]["80"] > 0.8  # type: ignore[index]


def test_forecasts_are_judged_from_when_somebody_asks() -> None:
    readiness = ToolReadiness(BackoffHistogram())
    for asked in (False, True):
        if asked:
            assert readiness.judged().by_tool == {}
        readiness.observe(ToolStarted(0.0, ID, "", (BASH,)))
        readiness.observe(ToolEnded(2.0, ID, "", (BASH,), 2.0))
    assert readiness.judged().by_tool["bash"].calls == 1


def test_calibration_is_bounded_whatever_the_tools_are_called() -> None:
    calibration = ReturnCalibration()
    for index in range(CLASSES_MAX + 50):
        calibration.record(Absence((ToolCall(f"{index:03d}" + "x" * 500),)), PointForecast(1.0, ""), 1.2)
    calibration.record(Absence((BASH, BASH)), PointForecast(1.0, ""), 2.0)
    assert len(calibration.by_tool) == CLASSES_MAX + 1
    assert calibration.by_tool["(other)"].calls == 51
    assert max(map(len, calibration.by_tool)) == 64
    assert calibration.to_json()["000" + "x" * 61] == {
        "calls": 1,
        "mean_absolute_error_seconds": pytest.approx(0.2),
        "within_half_second": 1.0,
        "coverage": {"50": 0.0, "80": 0.0, "95": 0.0},
    }


@pytest.mark.parametrize(
    ("absence", "name"),
    [
        (Absence(()), "(human)"),
        (Absence((BASH, BASH)), "bash"),
        (Absence((BASH, ToolCall("read"))), "(parallel)"),
    ],
    ids=["human", "twice the same", "parallel"],
)
def test_calibration_names_what_is_no_single_tool(absence: Absence, name: str) -> None:
    calibration = ReturnCalibration()
    calibration.record(absence, PointForecast(1.0, ""), 1.0)
    assert list(calibration.by_tool) == [name]


def test_the_longest_away_gives_way_first_among_equals_of_credit() -> None:
    readiness = taught(*[0.2] * 40, tools=(ToolCall("quick"),))
    for _ in range(40):
        readiness.observe(ToolEnded(0.0, ID, "", (ToolCall("build"),), 300.0))
        readiness.observe(ToolEnded(0.0, ID, "", (ToolCall("test"),), 30.0))
    order = LongestAwayFirst(HalfLifeCredit(), readiness)

    def key(tool: str, tokens: int, footprint_tokens: int = 1_000) -> tuple[int, ...]:
        evidence = {"a": (tokens, 0.0)}
        return order.key(
            acting_session(
                tool, tools=(ToolCall(tool),), evidence=evidence, footprint_tokens=footprint_tokens
            ),
            0.0,
        )

    assert key("build", 5_000) < key("test", 5_000) < key("quick", 5_000)
    assert key("build", 5_000) < key("test", 4_200), "the same power of two is the same credit"
    assert key("quick", 1_000) < key("build", 5_000)
    assert key("build", 5_000, 500) < key("build", 5_000, 1_000)


def test_without_readiness_nobody_is_away_for_long() -> None:
    assert NoReadiness().away_seconds(acting_session(), 5.0) == 0.0


def test_a_promise_says_how_long() -> None:
    readiness = taught(*[5.0] * 10)
    promised = acting_session(expected_at=20.0, told_at=10.0)
    assert readiness.away_seconds(promised, 12.0) == 8.0
    assert readiness.away_seconds(promised, 25.0) == 0.0
    assert readiness.away_seconds(acting_session(finished_at=3.0), 4.0) == 0.0
    assert readiness.explain(promised, 12.0)["evidence_seconds_ago"] == 2.0
