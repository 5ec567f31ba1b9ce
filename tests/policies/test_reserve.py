"""What is booked beside a context: the paper's 512 tokens, and less on small replicas."""

import pytest
from core_kit import World, of_kind

from tao.core.commands import AdmitSession, ComputePlan
from tao.policies import catalogue, make_policy
from tao.policies.reserve import CappedReserve, FixedReserve


@pytest.fixture(autouse=True)
def reserve_as_on_large_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the policies are as users have them."""
    monkeypatch.setattr(catalogue, "CappedReserve", CappedReserve)


@pytest.mark.parametrize(
    ("capacities", "reserve"),
    [({"a": 320_000}, 512), ({"a": 32_768}, 512), ({"a": 4_096}, 64), ({"a": 320_000, "b": 6_400}, 100)],
)
def test_it_is_a_share_of_the_smallest_replica_at_most(capacities: dict[str, int], reserve: int) -> None:
    w = World(make_policy("tao"), None, **capacities)
    assert CappedReserve().tokens(w.scheduler.view) == reserve
    assert FixedReserve().tokens(w.scheduler.view) == 512
    w.arrive("s", "t1", 1_000)
    [admit] = of_kind(w.log, AdmitSession)
    assert admit.weight_tokens == 1_000 + reserve


def test_a_replica_of_unknown_size_says_nothing() -> None:
    assert CappedReserve().tokens(World(make_policy("tao"), a=0).scheduler.view) == 512


def test_the_paper_keeps_its_figure_on_small_replicas() -> None:
    w = World(make_policy("tao-paper"), a=4_096)
    w.arrive("s", "t1", 1_000)
    [admit] = of_kind(w.log, AdmitSession)
    assert admit.weight_tokens == 1_512


def test_who_waits_is_weighed_anew_when_the_replicas_change() -> None:
    w = World(make_policy("tao"), a=320_000)
    w.arrive("long", "t1", 319_000)
    w.arrive("s", "t2", 3_900)
    assert w.after(1.0).wake() == [], "nobody fits"
    w.after(1.0).join("b", 4_096)
    w.wake()
    [compute] = of_kind(w.log, ComputePlan)
    assert [candidate.weight_tokens for candidate in compute.request.candidates] == [3_964]
