"""Hints of urgency order one tenant's sessions where nothing else does, and never get ahead of another tenant's."""

from core_kit import World, of_kind
from hypothesis import given
from hypothesis import strategies as st

from tao.core.commands import ComputePlan, DispatchTurn
from tao.core.events import TurnArrived, Urgency
from tao.core.ids import SessionId, TurnId
from tao.core.phases import Absent
from tao.core.session import Session
from tao.policies import make_policy
from tao.policies.urgency import ranks_of


def session(name: str, tenant: str, urgency: Urgency | None) -> Session:
    return Session(SessionId(name), tenant, None, None, Absent(), opened_at=0.0, urgency=urgency)


def hinted(w: World, name: str, tenant: str, urgency: Urgency | None, prompt_tokens: int = 2_000) -> None:
    w.send(
        TurnArrived(w.at, TurnId(f"{name}1"), SessionId(name), prompt_tokens, tenant=tenant, urgency=urgency)
    )


def order_of_dispatch(w: World, *names: str) -> list[str]:
    """Let one session in at a time until all have run."""
    running = "first"
    came: list[str] = []
    while len(came) < len(names):
        w.finish(f"{running}1", 2_000, 0, tools=())
        w.end(running)
        plans = of_kind(w.after(2.0).wake(), ComputePlan)
        [dispatch] = of_kind(w.solve(plans[-1]), DispatchTurn)
        running = dispatch.session
        came.append(running)
    return came


def test_equal_sessions_of_one_tenant_go_by_what_it_says() -> None:
    w = World(make_policy("tao"), a=3_000)
    hinted(w, "first", "t", None)
    hinted(w, "a", "t", None)
    hinted(w, "b", "t", Urgency(priority=5))
    hinted(w, "c", "t", Urgency(deadline_at=10.0))
    hinted(w, "d", "t", Urgency(deadline_at=5.0))
    assert order_of_dispatch(w, *"abcd") == ["b", "d", "c", "a"]


def test_a_hint_does_not_get_ahead_of_more_credit_or_a_larger_footprint() -> None:
    w = World(make_policy("tao"), a=3_000)
    hinted(w, "first", "t", None)
    hinted(w, "a", "t", None, 2_000)
    hinted(w, "b", "t", Urgency(priority=1000), 1_900)
    assert order_of_dispatch(w, *"ab") == ["a", "b"]


def test_a_forged_hint_does_not_get_ahead_of_another_tenant() -> None:
    """Tenant u says of everything that it is urgent: the order is as if it had said nothing."""
    for said in (None, Urgency(priority=1000, deadline_at=0.0)):
        w = World(make_policy("tao"), a=3_000)
        hinted(w, "first", "t", Urgency(priority=-1))
        hinted(w, "p", "t", None)
        hinted(w, "q", "t", Urgency(priority=-1))
        hinted(w, "r", "u", said)
        hinted(w, "s", "u", said)
        assert order_of_dispatch(w, *"pqrs") == ["p", "q", "r", "s"]


URGENCIES = st.none() | st.builds(Urgency, st.integers(-5, 5), st.none() | st.floats(0, 100))


@given(st.lists(st.tuples(st.sampled_from("tuv"), URGENCIES), max_size=12), URGENCIES)
def test_no_hint_changes_the_ranks_of_others(
    told: list[tuple[str, Urgency | None]], other: Urgency | None
) -> None:
    sessions = [session(f"s{number}", tenant, said) for number, (tenant, said) in enumerate(told)]
    ranks = ranks_of(sessions)
    if not any(said for _, said in told):
        assert ranks == {}
        return
    for tenant in "tuv":
        own = sorted(ranks[s.id] for s in sessions if s.tenant == tenant)
        assert own == list(range(len(own)))
    forged = [*sessions[:-1], session(sessions[-1].id, sessions[-1].tenant, other)]
    after = ranks_of(forged)
    if after:
        assert all(after[s.id] == ranks[s.id] for s in sessions if s.tenant != sessions[-1].tenant)
