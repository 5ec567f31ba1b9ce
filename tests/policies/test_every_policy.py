"""What every policy of the catalogue must do, whatever it is for."""

import pytest
from virtual_driver import VirtualDriver, scripted_sessions
from watched import Watched

from tao.core import SchedulerSettings
from tao.core.commands import Reason
from tao.core.ids import ReplicaId
from tao.core.ports import Hold, Place, View
from tao.core.session import Session, Turn
from tao.policies import POLICIES, UnknownPolicyError, make_policy

NAMES = sorted(POLICIES)
LIMITS_SESSIONS = {"aimd"}
"""Policies that hold sessions by their number: for them room in tokens is not enough."""


class Prompt(Watched):
    """Checks besides that no turn is held while the pool is empty and there is room for it."""

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        answer = super().place(view, session, turn, at)
        others = [other for other in view.pool if other != session.id]
        weight_tokens = self.weight_tokens(session)
        room = [r for r in view.up_replicas() if view.free_tokens(r.id) >= weight_tokens]
        assert others or not room or isinstance(answer, Place), "held although there is room and nobody waits"
        return answer


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_says_its_name_and_is_made_afresh(name: str) -> None:
    assert make_policy(name).name == name
    assert name == name.lower().replace("_", "-")
    assert make_policy(name) is not make_policy(name)


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    with pytest.raises(
        UnknownPolicyError, match=r"no policy is named 'round-robbin'; did you mean 'round-robin'\?"
    ):
        make_policy("round-robbin")
    with pytest.raises(UnknownPolicyError, match=r"no policy is named 'zzz'\. Known: tao, "):
        make_policy("zzz")


@pytest.mark.parametrize("name", NAMES)
def test_unsaturated_no_session_is_ever_held(name: str) -> None:
    """All sessions at their largest fill half of the capacity."""
    sessions = scripted_sessions(200, seed=1, every_seconds=0.25)
    demand = sum(s.turns[-1].prompt_tokens + s.turns[-1].output_tokens + 512 for s in sessions)
    watched = Watched(make_policy(name)) if name in LIMITS_SESSIONS else Prompt(make_policy(name))
    driver = VirtualDriver(watched, dict.fromkeys("abcd", 2 * demand // 4))
    run = driver.run(sessions)
    assert len(run.over) == 200
    assert not run.refused
    assert name in LIMITS_SESSIONS or not run.holds
    assert not driver.scheduler.view.sessions


@pytest.mark.parametrize("name", NAMES)
def test_saturated_every_session_ends_and_nothing_is_left(name: str) -> None:
    """About three times as many sessions at once as there is room for, and a replica that dies and comes back empty."""
    watched = Watched(make_policy(name))
    driver = VirtualDriver(watched, {"a": 20_000, "b": 12_000})
    driver.lose(15.0, "b", back_after=20.0, capacity_tokens=12_000)
    sessions = scripted_sessions(60, seed=2, every_seconds=0.5)
    run = driver.run(sessions)
    driver.scheduler.check_invariants()
    assert len(run.over) == 60
    assert not driver.scheduler.view.turns
    assert all(
        driver.scheduler.view.free_tokens(ReplicaId(r)) == c for r, c in (("a", 20_000), ("b", 12_000))
    )
    assert max(run.holds.values(), default=0.0) <= 300.0


@pytest.mark.parametrize("name", NAMES)
def test_the_same_events_give_the_same_commands(name: str) -> None:
    def log() -> object:
        driver = VirtualDriver(make_policy(name), {"a": 20_000, "b": 15_000})
        driver.lose(10.0, "a", back_after=5.0, capacity_tokens=18_000)
        return driver.run(scripted_sessions(25, seed=3, every_seconds=0.3)).log

    assert log() == log()


@pytest.mark.parametrize("name", NAMES)
def test_nobody_waits_beyond_the_bound(name: str) -> None:
    """Two sessions that never say goodbye and never come back fill the replica; others still get in."""
    driver = VirtualDriver(
        Watched(make_policy(name)), {"a": 10_000}, SchedulerSettings(idle_seconds_max=10_000)
    )
    hogs = [
        s.__class__(s.id, 0.0, s.turns[:1], says_goodbye=False) for s in scripted_sessions(2, tokens=4_400)
    ]
    others = [
        s.__class__(f"o{s.id}", s.starts_at + 5, s.turns) for s in scripted_sessions(4, seed=4, turns_max=2)
    ]
    run = driver.run([*hogs, *others], seconds_max=5_000)
    assert {session.id for session in others} <= set(run.over)
    assert max(run.holds.values(), default=0.0) <= 300.0
    for turn, seconds in run.holds.items():
        assert seconds < 300.0 or run.dispatched[turn].reason is Reason.FORCED


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_that_is_not_up_is_never_named(name: str) -> None:
    """`Watched` looks at each answer; here replicas come and go all the time."""
    driver = VirtualDriver(Watched(make_policy(name)), dict.fromkeys("abc", 30_000))
    for n in range(12):
        driver.lose(2.0 + 3.1 * n, "abc"[n % 3], back_after=4.0, capacity_tokens=30_000)
    run = driver.run(scripted_sessions(40, seed=5, every_seconds=0.7))
    assert len(run.over) == 40
    assert not driver.scheduler.view.turns
