"""Whose sessions end with a word: what is learned of each tenant, and what it means for those that asked for no tool."""

from math import inf

import pytest

from tao.core.events import ToolCall
from tao.core.facts import SessionClosed, SessionLapsed, ToolEnded, ToolsNamed, ToolStarted
from tao.core.ids import SessionId
from tao.policies.farewells import ABSENCES_MAX, RETURNS_MIN, SURE_ODDS, TENANTS_MAX, Farewells
from tao.policies.returns import PointForecast


def ended(farewells: Farewells, name: str, tenant: str, *, told: bool, came_back: bool = True) -> None:
    """A session that had several turns, or one, and is forgotten."""
    if came_back:
        farewells.observe(ToolEnded(0.0, SessionId(name), tenant, (), 1.0))
    farewells.observe(SessionClosed(1.0, SessionId(name), tenant, told=told))


def test_nobody_is_believed_for_long_before_anybody_said_goodbye() -> None:
    assert not Farewells().over("t", 7.0, 5.0)
    assert Farewells().over("t", 7.1, 5.0)
    assert Farewells().over("t", 7.1, 900.0), "nobody knows how long a human takes"
    assert Farewells().over("t", 2.6, 0.5)


def test_where_clients_say_goodbye_who_did_not_is_still_there() -> None:
    farewells = Farewells()
    ended(farewells, "a", "t", told=True)
    assert not farewells.over("t", 35.0, 5.0)
    assert farewells.over("t", 35.1, 5.0)
    assert farewells.over("other", 7.1, 5.0)


def test_the_majority_of_a_tenants_sessions_counts() -> None:
    farewells = Farewells()
    ended(farewells, "a", "t", told=True)
    ended(farewells, "b", "t", told=False)
    assert farewells.over("t", 7.1, 5.0)
    ended(farewells, "c", "t", told=True)
    assert not farewells.over("t", 7.1, 5.0)


@pytest.mark.parametrize("told", [True, False])
def test_a_request_without_a_session_says_nothing_of_clients(told: bool) -> None:
    farewells = Farewells()
    ended(farewells, "a", "t", told=told, came_back=False)
    assert farewells.over("t", 7.1, 5.0)


def test_tenants_are_remembered_within_a_bound() -> None:
    farewells = Farewells()
    for number in range(TENANTS_MAX + 1):
        ended(farewells, f"s{number}", f"t{number}", told=True)
    assert farewells.over("t0", 7.1, 5.0), "the one heard of least recently"
    assert not farewells.over("t1", 7.1, 5.0)


def away(farewells: Farewells, name: str, *tools: str, tenant: str = "t") -> None:
    calls = tuple(ToolCall(tool) for tool in tools)
    farewells.observe(ToolStarted(0.0, SessionId(name), tenant, calls))


def back(farewells: Farewells, name: str, *tools: str, tenant: str = "t") -> None:
    calls = tuple(ToolCall(tool) for tool in tools)
    farewells.observe(ToolEnded(1.0, SessionId(name), tenant, calls, 1.0))


def lapse(farewells: Farewells, name: str, tenant: str = "t") -> None:
    farewells.observe(SessionLapsed(1.0, SessionId(name), tenant))


def believed_seconds(farewells: Farewells, *, has_tools: bool, tenant: str = "t") -> float:
    """How long a silence is believed in where absences last up to 100 s, all lengths alike."""
    forecast = Evenly()
    steps = (step / 10.0 for step in range(2_000))
    over = (
        seconds
        for seconds in steps
        if farewells.surely_over(tenant, has_tools=has_tools, elapsed_seconds=seconds, forecast=forecast)
    )
    return next(over, inf)


class Evenly(PointForecast):
    def __init__(self) -> None:
        super().__init__(100.0, "test")

    def survival(self, elapsed_seconds: float) -> float:
        return max(0.0, 1.0 - elapsed_seconds / 100.0)


def acquainted() -> Farewells:
    """Just enough is known of the tenant: `RETURNS_MIN` returns from a tool."""
    farewells = Farewells()
    for _ in range(RETURNS_MIN):
        back(farewells, "first", "bash")
    return farewells


def test_silence_is_not_weighed_before_some_sessions_came_back() -> None:
    farewells = Farewells()
    for _ in range(RETURNS_MIN - 1):
        back(farewells, "first", "bash")
    assert believed_seconds(farewells, has_tools=True) == inf
    assert believed_seconds(farewells, has_tools=False) == inf


def test_few_absences_with_tools_are_taken_to_be_ends_and_half_of_those_without() -> None:
    farewells = acquainted()
    assert believed_seconds(farewells, has_tools=True) == pytest.approx(
        100.0 * (1.0 - 1.0 / 27.0 / SURE_ODDS), abs=0.1
    )
    assert believed_seconds(farewells, has_tools=False) == pytest.approx(
        100.0 * (1.0 - 1.0 / SURE_ODDS), abs=0.1
    )


def test_where_sessions_end_in_the_middle_of_tools_they_are_believed_in_less() -> None:
    farewells = Farewells()
    for number in range(20):
        away(farewells, f"s{number}", "bash")
        back(farewells, f"s{number}", "bash")
        away(farewells, f"s{number}", "bash")
        lapse(farewells, f"s{number}")
    assert believed_seconds(farewells, has_tools=True) == pytest.approx(
        100.0 * (1.0 - 21.0 / 39.0 / SURE_ODDS), abs=0.1
    )


def test_who_was_given_up_too_early_and_comes_back_is_counted_as_back() -> None:
    early, patient = acquainted(), acquainted()
    for farewells in (early, patient):
        away(farewells, "s", "bash")
    lapse(early, "s")
    assert believed_seconds(early, has_tools=True) < believed_seconds(patient, has_tools=True)
    for farewells in (early, patient):
        back(farewells, "s", "bash")
    assert believed_seconds(early, has_tools=True) == believed_seconds(patient, has_tools=True)


def test_an_end_that_nobody_lapsed_counts_when_the_session_is_forgotten() -> None:
    farewells = Farewells()
    for number in range(20):
        back(farewells, f"s{number}")
        away(farewells, f"s{number}")
    known = believed_seconds(farewells, has_tools=False)
    for number in range(20):
        farewells.observe(SessionClosed(700.0, SessionId(f"s{number}"), "t"))
    assert believed_seconds(farewells, has_tools=False) < known


def test_a_tool_named_later_makes_it_an_absence_with_a_tool() -> None:
    farewells = acquainted()
    back(farewells, "s", "bash")
    away(farewells, "s")
    farewells.observe(ToolsNamed(0.5, SessionId("s"), "t", (ToolCall("bash"),)))
    before = believed_seconds(farewells, has_tools=True)
    lapse(farewells, "s")
    assert believed_seconds(farewells, has_tools=True) < before


def test_where_clients_say_goodbye_silence_is_never_an_end() -> None:
    farewells = Farewells()
    ended(farewells, "a", "t", told=True)
    assert believed_seconds(farewells, has_tools=False) == inf
    assert believed_seconds(farewells, has_tools=True) == inf


def test_a_told_end_of_one_that_was_given_up_is_no_silent_one() -> None:
    farewells = acquainted()
    back(farewells, "s", "bash")
    before = believed_seconds(farewells, has_tools=True)
    away(farewells, "s", "bash")
    lapse(farewells, "s")
    farewells.observe(SessionClosed(2.0, SessionId("s"), "t", told=True))
    for name in ("x", "y"):  # so that silence is no longer believed to be told
        ended(farewells, name, "t", told=False)
    assert believed_seconds(farewells, has_tools=True) == before


def test_old_absences_fade() -> None:
    farewells = Farewells()
    for _ in range(int(4 * ABSENCES_MAX)):
        back(farewells, "s", "bash")
    patient = believed_seconds(farewells, has_tools=True)
    for number in range(int(ABSENCES_MAX)):
        away(farewells, f"s{number}", "bash")
        lapse(farewells, f"s{number}")
    assert believed_seconds(farewells, has_tools=True) < 95.0 < 99.0 < patient


def test_clients_that_never_come_back_after_an_answer_can_be_counted_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was counted is halved so often that it would be zero."""
    monkeypatch.setattr("tao.policies.farewells.ABSENCES_MAX", 64.0)
    farewells = acquainted()
    for number in range(40_000):
        away(farewells, f"s{number}")
        lapse(farewells, f"s{number}")
    assert believed_seconds(farewells, has_tools=False) == 1.0


def test_a_tool_named_after_the_session_was_given_up_counts_its_end_once() -> None:
    late, plain = acquainted(), acquainted()
    for farewells in (late, plain):
        back(farewells, "s", "bash")
        away(farewells, "s", "bash")
        lapse(farewells, "s")
    late.observe(ToolsNamed(2.0, SessionId("s"), "t", (ToolCall("bash"),)))
    for farewells in (late, plain):
        farewells.observe(SessionClosed(700.0, SessionId("s"), "t"))
    assert believed_seconds(late, has_tools=True) == believed_seconds(plain, has_tools=True)


def test_a_told_end_of_a_session_of_one_turn_that_was_given_up_is_no_silent_one() -> None:
    farewells = acquainted()
    before = believed_seconds(farewells, has_tools=False)
    away(farewells, "one")
    lapse(farewells, "one")
    assert believed_seconds(farewells, has_tools=False) < before
    farewells.observe(SessionClosed(2.0, SessionId("one"), "t", told=True))
    assert believed_seconds(farewells, has_tools=False) == before
