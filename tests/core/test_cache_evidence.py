"""What the core believes of a session's context and of the caches that hold it: usage, compaction, flushes, estimates."""

import pytest
from core_kit import World

from tao.core.events import TurnKind
from tao.core.session import CacheEvidence, EvidenceSource
from tao.policies import make_policy
from tao.policies.credit import HalfLifeCredit

RESERVE = 512
OWN = EvidenceSource.OWN_ACCOUNTING


@pytest.fixture
def w() -> World:
    return World(make_policy("tao"), a=100_000, b=100_000)


def rate(w: World, replica: str) -> float:
    return next(r.cache_rate for r in w.scheduler.view.up_replicas() if r.id == replica)


# --- usage -------------------------------------------------------------------------------------------------------------


def test_usage_corrects_the_estimate_in_both_directions(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 700, 50)
    assert w.session("s").footprint_tokens == 750
    w.arrive("s", "t2", 900)
    w.finish("t2", 1_400, 60)
    assert w.session("s").footprint_tokens == 1_460
    assert w.reserved("a") == 1_460 + RESERVE


def test_without_usage_the_estimate_and_the_counted_output_stand(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.progress("t1", 80)
    w.finish_untold("t1")
    assert w.session("s").footprint_tokens == 1_080
    assert w.session("s").evidence == {"a": CacheEvidence(1_080, 0.0, OWN)}


def test_after_a_turn_prompt_and_output_are_in_the_cache(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.after(4).finish("t1", 1_000, 100, cached_tokens=0)
    assert w.session("s").evidence == {"a": CacheEvidence(1_100, 4.0)}


def test_a_failed_turn_leaves_no_evidence(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.arrive("s", "t2", 1_200)
    w.first_token("t2")
    w.after(5).fail("t2")
    assert w.session("s").evidence == {"a": CacheEvidence(1_100, 0.0)}


@pytest.mark.parametrize(
    ("prefilled", "evidence"), [(True, CacheEvidence(2_000, 5.0, OWN)), (False, CacheEvidence(1_100, 0.0))]
)
def test_a_stopped_turn_leaves_its_prompt_if_that_was_prefilled(
    w: World, prefilled: bool, evidence: CacheEvidence
) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.after(5).arrive("s", "t2", 2_000)
    if prefilled:
        w.first_token("t2")
    w.leave("t2")
    w.stopped("t2")
    assert w.session("s").evidence == {"a": evidence}


# --- the learned rate of a replica -------------------------------------------------------------------------------------


def test_the_cache_rate_follows_what_came_back_of_what_was_expected(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 0, cached_tokens=0)  # nothing was expected: nothing is learned
    assert rate(w, "a") == 1.0
    w.arrive("s", "t2", 1_200)
    w.finish("t2", 1_200, 0, cached_tokens=500)  # half of it
    assert rate(w, "a") == pytest.approx(0.95)
    w.arrive("s", "t3", 1_400)
    w.finish("t3", 1_400, 0, cached_tokens=1_300)  # more than expected counts as all
    assert rate(w, "a") == pytest.approx(0.955)


def test_what_was_told_while_a_turn_ran_is_nothing_that_it_could_have_found(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.after(1).watch("a", "s", 900)
    w.finish("t1", 1_000, 0, cached_tokens=0)
    assert rate(w, "a") == 1.0
    w.arrive("s", "t2", 1_200)
    w.finish("t2", 1_200, 0, cached_tokens=500)
    assert rate(w, "a") == pytest.approx(0.95)


def test_a_short_turn_beside_the_leading_one_says_nothing_of_the_rest_of_the_context(w: World) -> None:
    w.arrive("s", "t1", 10_000)
    w.finish("t1", 10_000, 0, cached_tokens=0)
    w.after(1).arrive("s", "t2", 11_000)
    w.arrive("s", "beside", 11_000)  # the estimate counts on the whole context
    w.after(1).finish("beside", 1_000, 0, cached_tokens=900)
    assert rate(w, "a") == 1.0
    w.finish("t2", 11_000, 0, cached_tokens=10_000)
    assert rate(w, "a") == 1.0


def test_models_that_alternate_teach_the_cache_rate_nothing(w: World) -> None:
    for number in range(6):
        w.after(1).arrive("s", f"t{number}", 10_000, model=("base", "adapter")[number % 2])
        w.finish(f"t{number}", 10_000, 0, cached_tokens=0)
    assert rate(w, "a") == rate(w, "b") == 1.0


def test_where_the_engine_does_not_tell_the_rate_scales_the_estimate(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 0, cached_tokens=0)
    w.arrive("s", "t2", 1_000)
    w.finish("t2", 1_000, 0, cached_tokens=0)
    assert rate(w, "a") == pytest.approx(0.9)
    w.arrive("s", "t3", 2_000)
    w.finish("t3", 2_000, 0, cached_tokens=None)
    assert w.session("s").evidence["a"].tokens == 1_800  # type: ignore[index]


# --- compaction --------------------------------------------------------------------------------------------------------


def test_a_declared_reset_voids_credit_and_starts_the_footprint_afresh(w: World) -> None:
    w.arrive("s", "t1", 50_000)
    w.finish("t1", 50_000, 1_000)
    w.arrive("s", "t2", 8_000, TurnKind.RESET)
    assert w.session("s").evidence == {}
    assert w.session("s").footprint_tokens == 8_000
    assert w.reserved("a") == 8_000 + RESERVE
    w.finish("t2", 8_100, 200)
    assert w.session("s").evidence == {"a": CacheEvidence(8_300, 0.0)}
    assert w.session("s").footprint_tokens == 8_300


def test_an_undeclared_shrink_is_seen_in_the_usage(w: World) -> None:
    w.arrive("s", "t1", 50_000)
    w.finish("t1", 50_000, 0)
    w.arrive("s", "t2", 52_000)  # the estimate knows nothing of the compaction
    w.finish("t2", 9_000, 100)
    assert w.session("s").footprint_tokens == 9_100
    assert w.session("s").evidence == {"a": CacheEvidence(9_100, 0.0)}


def test_a_small_correction_is_no_compaction(w: World) -> None:
    w.arrive("s", "t1", 50_000)
    w.finish("t1", 50_000, 0)
    w.arrive("s", "t2", 50_000)
    w.finish("t2", 41_000, 0)
    assert w.session("s").footprint_tokens == 50_000


def test_a_turn_of_the_earlier_line_that_ends_late_changes_nothing(w: World) -> None:
    w.arrive("s", "t1", 50_000)
    w.arrive("s", "t2", 8_000, TurnKind.RESET)
    w.finish("t1", 50_000, 500, tools=("bash",))
    assert w.session("s").footprint_tokens == 8_000
    assert w.session("s").evidence == {}
    w.finish("t2", 8_000, 100, tools=())
    assert w.session("s").footprint_tokens == 8_100
    assert w.session("s").tools == ()


def test_while_the_earlier_line_runs_on_it_stays_booked(w: World) -> None:
    w.arrive("s", "t1", 50_000)
    w.progress("t1", 700)
    w.arrive("s", "t2", 8_000, TurnKind.RESET)
    assert w.reserved("a") == (50_700 + RESERVE) + 8_000
    w.finish("t1", 50_000, 900)
    assert w.reserved("a") == (8_000 + RESERVE) + 8_000
    w.finish("t2", 8_000, 100)
    assert w.reserved("a") == 8_100 + RESERVE


def test_a_shrink_bounds_what_other_replicas_are_believed_to_hold() -> None:
    w = World(make_policy("round-robin"), a=100_000, b=100_000)
    w.arrive("s", "t1", 2_000)  # on a
    w.finish_untold("t1")
    w.arrive("s", "t2", 2_000)  # on b
    w.finish("t2", 1_500, 100)
    assert w.session("s").footprint_tokens == 1_600
    assert {r: e.tokens for r, e in w.session("s").evidence.items()} == {"a": 1_600, "b": 1_600}


# --- flushes -----------------------------------------------------------------------------------------------------------


def test_a_flush_voids_all_evidence_on_that_replica_only() -> None:
    w = World(make_policy("round-robin"), a=100_000, b=100_000)
    for turn in ("t1", "t2"):
        w.arrive("s", turn)
        w.finish(turn)
    epoch = w.session("s").epoch
    assert w.flush("a") == []
    assert list(w.session("s").evidence) == ["b"]
    assert w.session("s").epoch == epoch + 1  # a plan that counted on it is stale


def test_a_turn_that_was_running_at_the_flush_is_in_the_cache_afterwards(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.flush("a")
    w.finish("t1", 1_000, 100)
    assert w.session("s").evidence == {"a": CacheEvidence(1_100, 0.0)}


# --- a watched cache ---------------------------------------------------------------------------------------------------


def test_what_kv_events_tell_replaces_belief_and_does_not_age(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    epoch = w.session("s").epoch
    w.after(3).watch("a", "s", 900)
    assert w.session("s").evidence == {"a": CacheEvidence(900, 3.0, EvidenceSource.KV_EVENTS)}
    assert w.session("s").epoch == epoch + 1
    w.after(60).watch("a", "s", 900)
    assert w.session("s").epoch == epoch + 1  # nothing new
    assert HalfLifeCredit().tokens(w.session("s"), w.at) == {"a": 900}
    w.watch("a", "s", 300)
    assert HalfLifeCredit().tokens(w.session("s"), w.at) == {"a": 300}


def test_an_evicted_session_has_no_evidence_left(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.watch("a", "s", 0)
    assert w.session("s").evidence == {}
    w.watch("a", "s", 0)
    assert w.session("s").evidence == {}


def test_kv_events_never_raise_evidence_above_the_sessions_own_tokens(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.watch("a", "s", 1 << 40)
    assert w.session("s").evidence == {"a": CacheEvidence(1_100, 0.0, EvidenceSource.KV_EVENTS)}


def test_a_lost_watch_leaves_a_memory_that_ages(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.watch("a", "s", 960)
    w.after(50).lose_watch("b")
    w.lose_watch("a")
    assert HalfLifeCredit().tokens(w.session("s"), w.at) == {"a": 960}
    assert HalfLifeCredit().tokens(w.session("s"), w.at + 10) == {"a": 480}


def test_what_is_told_of_strangers_and_of_the_dead_is_ignored(w: World) -> None:
    w.arrive("s", "t1", 1_000)
    w.finish("t1", 1_000, 100)
    w.watch("a", "nobody", 5)
    w.watch("nowhere", "s", 5)
    w.lose("a")
    w.watch("a", "s", 5)
    assert w.session("s").evidence == {}
    assert w.ignored == {"PrefixObserved": 3}


def test_the_watch_of_one_session_may_be_lost() -> None:
    w = World(make_policy("round-robin"), a=100_000)
    for session in ("s", "t"):
        w.arrive(session, session)
        w.finish(session, 1_000, 100)
        w.watch("a", session, 960)
    w.lose_watch("a", "s")
    w.lose_watch("a", "nobody")
    sources = {name: w.session(name).evidence["a"].source for name in ("s", "t")}  # type: ignore[index]
    assert sources == {"s": EvidenceSource.CACHED_TOKENS, "t": EvidenceSource.KV_EVENTS}
