"""Corners of the baselines: empty replicas, bounds of tables, plans that nobody asked for."""

from pathlib import Path

import pytest
from core_kit import World, of_kind

from tao.core.commands import DispatchTurn
from tao.core.events import PlanReady, TurnKind
from tao.core.facts import TurnDispatched
from tao.core.ids import PlanId, ReplicaId, SessionId
from tao.policies import make_policy
from tao.policies.baselines import BASELINES, PerTurnPolicy
from tao.policies.baselines import hashing as hashing_module
from tao.policies.baselines import prefix_lines as prefix_lines_module
from tao.policies.baselines.cache_aware import kv_usage
from tao.policies.baselines.prefix_lines import PrefixLines
from tao.policies.baselines.progress_ttl import ProgressTtl
from tao.policies.baselines.thunderagent import shadows as shadows_module
from tao.policies.baselines.thunderagent.policy import ThunderAgent
from tao.policies.baselines.thunderagent.shadows import NeverReleased, Shadow
from tao.policies.own import load_policy


def test_a_replica_without_capacity_counts_as_full() -> None:
    w = World(make_policy("llm-d"), a=0)
    [replica] = w.scheduler.view.up_replicas()
    assert kv_usage(w.scheduler.view, replica) == 1.0


@pytest.mark.parametrize("policy", sorted(BASELINES))
def test_a_baseline_plans_nothing_and_gives_up_on_nobody(policy: str) -> None:
    chosen = make_policy(policy)
    w = World(chosen, a=10_000)
    w.arrive("s", "t")
    w.finish("t")
    view = w.scheduler.view
    plan = PlanReady(0.0, PlanId(1), ((SessionId("s"), ReplicaId("a")),))
    assert list(chosen.select(view, plan, [], 1e6)) == []
    assert list(chosen.lapsed(view, 1e6)) == []


@pytest.mark.parametrize("policy", sorted(BASELINES))
def test_deciding_with_an_empty_pool_places_nobody(policy: str) -> None:
    chosen = make_policy(policy)
    w = World(chosen, a=10_000)
    w.arrive("s", "t")
    assert list(chosen.interrupts(w.scheduler.view, 0.0)) == []
    assert list(chosen.decide(w.scheduler.view, 0.0).placements) == []


@pytest.mark.parametrize("policy", sorted(BASELINES))
def test_deciding_while_no_replica_is_up_places_nobody(policy: str) -> None:
    chosen = make_policy(policy)
    w = World(chosen)
    w.arrive("s", "t")
    assert list(chosen.decide(w.scheduler.view, 0.0).placements) == []


def test_a_turn_that_nobody_serves_holds_up_no_other_one_of_a_router() -> None:
    w = World(make_policy("round-robin"))
    w.arrive("s", "t", model="y")
    w.arrive("r", "u", model="x")
    w.join("a", 10_000, models=("x",))
    w.run_for(0.1)
    assert [(d.turn, d.replica) for d in of_kind(w.log, DispatchTurn)] == [("u", "a")]


def test_a_ring_that_was_forgotten_is_built_again_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(rings_max: int) -> tuple[list[str], int]:
        """Where twenty sessions of two models go, and how many rings are kept then."""
        monkeypatch.setattr(hashing_module, "RINGS_MAX", rings_max)
        router = hashing_module.ConsistentHash()
        w = World(PerTurnPolicy("consistent-hash", router))
        for replica, models in (("a", ("x",)), ("b", ("x", "y")), ("c", ("y",))):
            w.join(replica, 90_000, models)
        for number in range(20):
            w.arrive(f"s{number}", f"t{number}", model="xy"[number % 2])
        return [d.replica for d in of_kind(w.log, DispatchTurn)], len(router._rings)

    bounded, kept = sent(rings_max=1)
    unbounded, built = sent(rings_max=64)
    assert (kept, built) == (1, 2)
    assert bounded == unbounded
    assert set(bounded) == {"a", "b", "c"}


def test_progress_is_made_by_the_main_line_alone() -> None:
    policy = ProgressTtl()
    w = World(policy, a=90_000)
    w.arrive("s", "t1", 1_000)
    w.arrive("s", "side", 500, TurnKind.SIDE)
    w.finish("side", 500, 9_000)
    assert policy._progress.output_tokens.value == 0.0
    w.finish("t1", 1_000, 100)
    assert policy._progress.output_tokens.value == 100.0


def test_the_oldest_shadows_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows_module, "SHADOWS_MAX", 2)
    book = NeverReleased()
    for name in ("s1", "s2", "s3"):
        book.add(Shadow(SessionId(name), 10, ReplicaId("a"), 0.0))
    assert [shadow.id for shadow in book.on(ReplicaId("a"))] == ["s2", "s3"]


def test_the_tenant_that_was_silent_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_lines_module, "TENANTS_MAX", 1)
    lines = PrefixLines()
    w = World(make_policy("round-robin"), a=10_000)
    for number, tenant in enumerate(("one", "two")):
        [dispatch] = of_kind(w.arrive(f"s{number}", f"t{number}"), DispatchTurn)
        w.session(f"s{number}").tenant = tenant
        lines.observe(
            w.scheduler.view, TurnDispatched(0.0, dispatch.session, dispatch.turn, dispatch.replica, 1_000)
        )
    assert list(lines._tenants) == ["two"]


def test_an_earlier_line_that_is_retried_leaves_the_present_one_alone() -> None:
    w = World(make_policy("sglang-cache-aware"), a=90_000, b=90_000, c=95_000)
    w.arrive("s", "old", 5_000)
    w.arrive("s", "new", 400, TurnKind.RESET)
    [retried] = of_kind(w.fail("old", retryable=True), DispatchTurn)
    assert retried.replica == "c"
    w.finish("new", 400, 10)
    w.finish("old", 5_000, 10)
    [dispatch] = of_kind(w.arrive("s", "t3", 500), DispatchTurn)
    assert dispatch.replica == "b"  # where the new line was sent


def test_the_size_when_paused_lasts_until_the_program_runs_again() -> None:
    policy = make_policy("thunderagent-faithful")
    assert isinstance(policy, ThunderAgent)
    sizes = policy._parts.pause_sizes
    w = World(policy, a=10_000)
    w.arrive("first", "f1", 9_000)
    w.arrive("s", "s1", 2_000)
    session = w.session("s")
    session.footprint_tokens = 3_000
    assert sizes.of(session) == 2_000
    session.footprint_tokens = 2_000
    w.finish("f1", 9_000, 0)
    w.end("first")
    w.after(5.0).wake()
    assert w.session("s").home == "a"
    session.footprint_tokens = 3_000
    assert sizes.of(session) == 3_000
    session.footprint_tokens = 2_000


def test_a_method_that_tells_no_signature_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tells_nothing.py").write_text(
        "from tao.policies.baselines.session_fcfs import SessionFcfs\n"
        "class Mine(SessionFcfs):\n    name = 'mine'\n    explain = max\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_policy("tells_nothing:Mine").name == "mine"
