"""Whose sessions end with a word: what is learned of each tenant, and what it means for those that asked for no tool."""

import pytest

from tao.core.facts import SessionClosed, ToolEnded
from tao.core.ids import SessionId
from tao.policies.farewells import TENANTS_MAX, Farewells


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
