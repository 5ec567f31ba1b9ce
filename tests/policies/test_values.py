"""The value triple: decayed credit (eq. 4), readiness (eq. 5-6) with its probes and its end of belief."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_kit import acting_session

from tao.core.events import ToolCall
from tao.core.facts import ToolEnded, TurnHeld
from tao.core.ids import SessionId, TurnId
from tao.core.phases import Running, Waiting
from tao.policies.credit import HalfLifeCredit, NoCredit
from tao.policies.readiness import NoReadiness, ToolReadiness
from tao.policies.returns import EmpiricalBernstein

# --- credit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_seconds", "tokens"), [(0, 10_000), (5, 7_071), (10, 5_000), (20, 2_500), (100, 10), (200, None)]
)
def test_credit_halves_every_ten_seconds(age_seconds: float, tokens: int | None) -> None:
    session = acting_session(evidence={"a": (10_000, 3.0)})
    assert HalfLifeCredit().tokens(session, 3.0 + age_seconds).get("a") == tokens  # type: ignore[call-overload]


def test_no_evidence_no_credit() -> None:
    session = acting_session(evidence={"a": (10_000, 0.0), "b": (8, 0.0), "c": (0, 0.0)})
    assert HalfLifeCredit().tokens(session, 40.0) == {"a": 625}
    assert HalfLifeCredit().tokens(acting_session(), 0.0) == {}


def test_the_half_life_is_a_parameter_and_the_future_counts_as_now() -> None:
    session = acting_session(evidence={"a": (1_000, 50.0)})
    assert HalfLifeCredit(half_life_seconds=2.0).tokens(session, 52.0) == {"a": 500}
    assert HalfLifeCredit().tokens(session, 40.0) == {"a": 1_000}


def test_without_credit_every_placement_is_worth_the_same() -> None:
    assert NoCredit().tokens(acting_session(evidence={"a": (1_000, 0.0)}), 0.0) == {}


@given(tokens=st.integers(0, 10**9), earlier=st.floats(0, 1e6), later=st.floats(0, 1e6))
def test_credit_never_grows_with_age(tokens: int, earlier: float, later: float) -> None:
    session = acting_session(evidence={"a": (tokens, 0.0)})
    first, second = sorted((earlier, later))
    credit = [HalfLifeCredit().tokens(session, at).get("a", 0) for at in (first, second)]  # type: ignore[call-overload]
    assert tokens >= credit[0] >= credit[1] >= 0


# --- readiness ---------------------------------------------------------------------------------------------------------


def ready_from_to(start: float, end: float, **session: object) -> list[tuple[float, float]]:
    """The intervals in which the session is ready, on a grid of a tenth of a second."""
    record = acting_session(**session)  # type: ignore[arg-type]
    readiness = ToolReadiness(EmpiricalBernstein())
    found: list[tuple[float, float]] = []
    for tenth in range(round(start * 10), round(end * 10) + 1):
        at = tenth / 10
        if readiness.ready(record, at):
            first = found.pop()[0] if found and found[-1][1] == (tenth - 1) / 10 else at
            found.append((first, at))
    return found


def test_whoever_is_back_is_ready() -> None:
    readiness = ToolReadiness(EmpiricalBernstein())
    session = acting_session()
    session.phase = Waiting((TurnId("t"),), 0.0)
    assert readiness.ready(session, 1e6) == 1
    session.phase = Running((TurnId("t"),), "a")  # type: ignore[arg-type]
    assert readiness.ready(session, 0.0) == 1
    assert readiness.explain(session, 0.0) == {}
    assert not readiness.lapsed(session, 1e6)


def test_completion_observed_beats_every_prediction() -> None:
    session = acting_session(finished_at=2.0, expected_at=500.0, told_at=2.0)
    readiness = ToolReadiness(EmpiricalBernstein())
    assert readiness.ready(session, 2.0) == 1
    assert readiness.explain(session, 3.0)["source"] == "completion observed"


def test_a_default_tool_is_ready_within_the_horizon_and_then_in_probes() -> None:
    """5 s is the default; the horizon is 1 s; probes begin 0, 2, 6, 14 s after; belief ends 30 s after."""
    assert ready_from_to(0, 120) == [(4.0, 6.0), (7.0, 8.0), (11.0, 12.0), (19.0, 20.0), (35.0, 35.0)]


def test_a_literal_sleep_is_taken_at_its_word() -> None:
    sleep = ToolCall("bash", "sleep", sleep_seconds=40.0)
    assert ready_from_to(0, 42, tools=(sleep,))[0] == (39.0, 41.0)


def test_a_promise_counts_for_thirty_seconds() -> None:
    promised = {"expected_at": 20.0, "told_at": 10.0}
    assert ready_from_to(0, 22.5, **promised) == [(19.0, 21.0), (22.0, 22.5)]
    # From 40 s on the promise is stale and the prediction of 5 s counts, which is 35 s overdue: out of belief.
    assert ready_from_to(40.1, 100, **promised) == []


def test_a_promise_that_went_stale_leaves_the_prediction() -> None:
    session = {"tools": (ToolCall("bash", "sleep", 60.0),), "expected_at": 10.0, "told_at": 5.0}
    assert ready_from_to(36, 62, **session) == [(59.0, 61.0), (62.0, 62.0)]


def test_explain_names_the_tools_and_the_evidence() -> None:
    readiness = ToolReadiness(EmpiricalBernstein())
    session = acting_session(tools=(ToolCall("bash", "pytest"), ToolCall("read")))
    assert readiness.explain(session, 2.0) == {
        "tools": ["bash pytest", "read"],
        "running_seconds": 2.0,
        "returns_in_seconds": 3.0,
        "returns_in_seconds_p80": 3.0,
        "chance_within_horizon": 0.0,
        "source": "default",
        "evidence_seconds_ago": 0.0,
    }
    promised = acting_session(expected_at=9.0, told_at=1.0)
    assert readiness.explain(promised, 2.0)["source"] == "told by the tool interface"


def test_readiness_learns_from_tools_that_ended_and_from_nothing_else() -> None:
    readiness = ToolReadiness(EmpiricalBernstein())
    readiness.observe(TurnHeld(0.0, SessionId("s"), TurnId("t")))
    readiness.observe(ToolEnded(0.0, SessionId("s"), "", (ToolCall("bash"),), 12.0))
    assert readiness.explain(acting_session(), 0.0)["returns_in_seconds"] == 12.0


@pytest.mark.parametrize(
    ("session", "lapses_after"),
    [({}, 20.0), ({"finished_at": 4.0}, 19.0), ({"expected_at": 100.0, "told_at": 90.0}, 20.0)],
    ids=["predicted", "tool finished", "promise"],
)
def test_a_session_lapses_when_its_return_is_fifteen_seconds_overdue(
    session: dict[str, float], lapses_after: float
) -> None:
    readiness = ToolReadiness(EmpiricalBernstein())
    record = acting_session(**session)  # type: ignore[arg-type]
    assert not readiness.lapsed(record, lapses_after)
    if "told_at" in session:
        assert not readiness.lapsed(record, 115.0)  # the promise is fresh
        assert readiness.lapsed(record, 115.1)
    else:
        assert readiness.lapsed(record, lapses_after + 0.1)


def test_without_readiness_the_coordinate_says_nothing() -> None:
    readiness = NoReadiness(believed_seconds=20.0)
    session = acting_session(finished_at=1.0)
    readiness.observe(TurnHeld(0.0, SessionId("s"), TurnId("t")))
    assert readiness.ready(session, 1.0) == 0
    assert readiness.explain(session, 1.0) == {}
    assert not readiness.lapsed(session, 20.0)
    assert readiness.lapsed(session, 20.1)
    session.phase = Waiting((TurnId("t"),), 0.0)
    assert not readiness.lapsed(session, 1e6)
