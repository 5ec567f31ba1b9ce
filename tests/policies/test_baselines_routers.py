"""The request routers: where each turn goes, with numbers worked out by hand."""

from collections import Counter

import pytest
from core_kit import World, of_kind

from tao.core import Scheduler
from tao.core.commands import AdmitSession, DispatchTurn, Reason
from tao.core.events import ReplicaJoined, TurnArrived, TurnKind
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.policies import make_policy
from tao.policies.baselines.cache_aware import TurnImbalance, UsageImbalance, kv_usage
from tao.policies.baselines.dynamo_kv import DynamoKv
from tao.policies.baselines.hashing import hash64, rendezvous_weight
from tao.policies.baselines.llm_d import WeightedScorers
from tao.policies.baselines.per_turn import PerTurnPolicy
from tao.policies.baselines.prefix_lines import PrefixLines

ROUTERS = [
    "round-robin",
    "least-loaded",
    "consistent-hash",
    "vllm-cache-aware",
    "sglang-cache-aware",
    "dynamo-kv",
    "llm-d",
    "sticky-least-loaded",
]


def sent_to(world: World, session: str, turn: str, prompt_tokens: int = 1000) -> str:
    [dispatch] = of_kind(world.arrive(session, turn, prompt_tokens), DispatchTurn)
    return dispatch.replica


# --- what all of them have in common ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ROUTERS)
def test_a_router_holds_nobody_back_and_books_nothing_for_idle_sessions(policy: str) -> None:
    w = World(make_policy(policy), a=1_000, b=1_000)
    w.arrive("s", "t1", 5_000)  # larger than every replica
    w.arrive("r", "u1", 900)
    w.arrive("q", "v1", 900)
    assert len(of_kind(w.log, DispatchTurn)) == 3
    for turn in ("t1", "u1", "v1"):
        w.finish(turn, 900, 50)
    assert (w.reserved("a"), w.reserved("b")) == (0, 0)


@pytest.mark.parametrize("policy", ROUTERS)
def test_turns_that_arrived_while_no_replica_was_up_go_out_when_one_is(policy: str) -> None:
    w = World(make_policy(policy))
    for number in range(3):
        w.arrive(f"s{number}", f"t{number}")
    assert w.log == []
    w.join("a", 10_000)
    while (due := w.scheduler.next_wakeup()) is not None and due <= w.at:
        w.wake()
    assert {d.turn: d.replica for d in of_kind(w.log, DispatchTurn)} == {"t0": "a", "t1": "a", "t2": "a"}


@pytest.mark.parametrize("policy", ROUTERS)
def test_a_replica_that_is_not_up_gets_no_turn(policy: str) -> None:
    w = World(make_policy(policy), a=10_000, b=10_000)
    homes = {session: sent_to(w, session, f"{session}1") for session in ("s", "r", "q", "p")}
    for session in homes:
        w.finish(f"{session}1")
    w.lose("a")
    assert {sent_to(w, session, f"{session}2", 1_200) for session in homes} == {"b"}


@pytest.mark.parametrize("policy", ["least-loaded", "sglang-cache-aware", "dynamo-kv", "llm-d"])
def test_sessions_that_waited_for_a_replica_are_spread(policy: str) -> None:
    w = World(make_policy(policy))
    for number in range(4):
        w.arrive(f"s{number}", f"t{number}")
    w.join("a", 10_000)
    w.join("b", 10_000)
    while (due := w.scheduler.next_wakeup()) is not None and due <= w.at:
        w.wake()
    assert Counter(d.replica for d in of_kind(w.log, DispatchTurn)) == {"a": 2, "b": 2}


# --- round robin, least loaded, hashes ----------------------------------------------------------------------------------


def test_round_robin_goes_round() -> None:
    w = World(make_policy("round-robin"), a=9_000, b=9_000, c=9_000)
    assert [sent_to(w, f"s{n}", f"t{n}") for n in range(5)] == ["a", "b", "c", "a", "b"]


def test_least_loaded_counts_turns_in_flight() -> None:
    w = World(make_policy("least-loaded"), a=9_000, b=9_000)
    assert [sent_to(w, f"s{n}", f"t{n}") for n in range(3)] == ["a", "b", "a"]
    w.finish("t0")
    w.finish("t2")
    assert sent_to(w, "s3", "t3") == "a"


def test_consistent_hash_keeps_sessions_and_moves_only_those_of_a_lost_replica() -> None:
    w = World(make_policy("consistent-hash"), a=9_000, b=9_000, c=9_000, d=9_000)
    before = {n: sent_to(w, f"s{n}", f"t{n}") for n in range(100)}
    counts = Counter(before.values())
    assert all(10 <= counts[replica] <= 40 for replica in "abcd"), counts  # 160 virtual nodes spread fairly
    assert all(sent_to(w, f"s{n}", f"u{n}") == home for n, home in before.items())
    w.lose("c")
    after = {n: sent_to(w, f"s{n}", f"v{n}") for n in range(100)}
    assert {n for n in before if before[n] != after[n]} == {n for n in before if before[n] == "c"}


def test_hashes_are_the_same_everywhere() -> None:
    assert hash64("a|s1") == 0x46E02BDCA781FE60
    assert rendezvous_weight(SessionId("s1"), ReplicaId("a")) == hash64("a|s1")


def test_sticky_goes_to_fewest_sessions_and_stays() -> None:
    w = World(make_policy("sticky-least-loaded"), a=9_000, b=9_000)
    homes = {f"s{n}": sent_to(w, f"s{n}", f"t{n}") for n in range(6)}
    assert Counter(homes.values()) == {"a": 3, "b": 3}
    for number in range(6):
        w.finish(f"t{number}")
    for session in [s for s, home in homes.items() if home == "a"][:2]:
        w.end(session)
    assert [sent_to(w, "new1", "x1"), sent_to(w, "new2", "x2")] == ["a", "a"]
    stayed = next(s for s, home in homes.items() if home == "b")
    assert sent_to(w, stayed, "again", 1_200) == "b"


def test_sticky_breaks_ties_by_the_rendezvous_weight() -> None:
    for number in range(8):
        w = World(make_policy("sticky-least-loaded"), a=9_000, b=9_000, c=9_000)
        session = SessionId(f"session-{number}")
        heaviest = max("abc", key=lambda replica: rendezvous_weight(session, ReplicaId(replica)))
        assert sent_to(w, session, "t") == heaviest


# --- the prefix tree on session lines -----------------------------------------------------------------------------------


class Lines:
    """A world with a known route whose prefix lines can be asked."""

    def __init__(self, ttl_seconds: float = float("inf")) -> None:
        self.lines = PrefixLines(ttl_seconds)
        policy = make_policy("round-robin")
        assert isinstance(policy, PerTurnPolicy)
        self.world = World(policy, a=90_000, b=90_000)
        policy._router.observe = self.lines.observe  # type: ignore[method-assign]

    def matched(self, session: str, prompt_tokens: int) -> dict[str, int]:
        record = self.world.session(session)
        found = self.lines.matches(record, prompt_tokens, self.world.at)
        return {str(replica): match.tokens for replica, match in found.items()}


def test_the_shared_prompt_matches_also_where_the_session_itself_sent_less() -> None:
    w = Lines()
    w.world.arrive("first", "f1", 1_000)  # to a
    w.world.finish("f1", 1_000, 10, cached_tokens=500)  # so much do the tenant's sessions share
    w.world.arrive("other", "o1", 1_000)  # to b
    w.world.arrive("s", "t1", 300)  # to a
    assert w.matched("s", 1_000) == {"a": 500, "b": 500}


def test_a_line_matches_what_was_sent_of_it_to_each_replica() -> None:
    w = Lines()
    w.world.arrive("s", "t1", 1_000)
    w.world.finish("t1", 1_000, 100)
    assert w.matched("s", 1_300) == {"a": 1_000}  # the answer was never sent
    w.world.arrive("s", "t2", 1_300)
    w.world.finish("t2", 1_300, 100)
    assert w.matched("s", 1_500) == {"a": 1_000, "b": 1_300}
    assert w.matched("s", 1_100) == {"a": 1_000, "b": 1_100}


def test_a_line_started_afresh_matches_nothing_of_the_old_one() -> None:
    w = Lines()
    w.world.arrive("s", "t1", 1_000)
    w.world.finish("t1", 1_000, 100)
    w.world.arrive("s", "t2", 400, TurnKind.RESET)
    assert w.matched("s", 500) == {"b": 400}


def test_side_turns_and_closed_sessions_leave_no_line() -> None:
    w = Lines()
    w.world.arrive("s", "t1", 1_000)
    w.world.arrive("s", "x1", 300, TurnKind.SIDE)
    assert w.matched("s", 1_000) == {"a": 1_000}
    w.world.finish("t1")
    w.world.finish("x1", 300)
    w.world.end("s")
    w.world.arrive("s", "t2", 1_000)
    assert w.matched("s", 1_000) == {
        "b": 1_000
    }  # round robin has moved on; nothing is known of the first life


def test_the_prompt_that_a_tenant_shares_is_learned_from_first_turns() -> None:
    w = Lines()
    w.world.arrive("s0", "t0", 1_000)
    w.world.finish("t0", 1_000, 100, cached_tokens=0)
    for number in range(1, 4):
        w.world.arrive(f"s{number}", f"t{number}", 1_000)
        w.world.finish(f"t{number}", 1_000, 100, cached_tokens=640)
    w.world.arrive("new", "n1", 900)
    w.lines._lines.clear()
    assert w.matched("new", 900) == {"a": 640, "b": 640}  # the median of 0, 640, 640, 640
    assert w.matched("new", 500) == {"a": 500, "b": 500}


def test_what_is_older_than_its_time_to_live_counts_as_evicted() -> None:
    w = Lines(ttl_seconds=120.0)
    w.world.arrive("s", "t1", 1_000)
    w.world.after(120.0)
    assert w.matched("s", 1_000) == {"a": 1_000}
    w.world.after(0.5)
    assert w.matched("s", 1_000) == {}


def test_a_voided_cache_is_forgotten() -> None:
    w = Lines()
    w.world.arrive("s", "t1", 1_000)
    w.world.flush("a")
    assert w.matched("s", 1_000) == {}


# --- cache-aware --------------------------------------------------------------------------------------------------------


def test_turn_imbalance_needs_a_difference_and_a_ratio() -> None:
    w = World(make_policy("round-robin"), a=9_000, b=9_000)
    view = w.scheduler.view
    up = list(view.up_replicas())
    gate = TurnImbalance(turns=4, ratio=1.5)
    for most, least, expected in [
        (4, 0, False),
        (5, 0, True),
        (15, 10, False),
        (16, 10, True),
        (20, 15, False),
    ]:
        up[0].turns_in_flight, up[1].turns_in_flight = most, least
        assert gate.holds(view, up) is expected, (most, least)
        up[0].turns_in_flight, up[1].turns_in_flight = least, most
        assert gate.holds(view, up) is expected
    up[0].turns_in_flight = up[1].turns_in_flight = 0


def test_usage_imbalance_looks_at_the_share_of_capacity_in_use() -> None:
    w = World(make_policy("round-robin"), a=1_000, b=1_000)
    w.arrive("s", "t", 950)
    view = w.scheduler.view
    up = view.up_replicas()
    assert [kv_usage(view, replica) for replica in up] == [pytest.approx(0.95), 0.0]
    assert UsageImbalance(overload=0.9).holds(view, up)
    assert UsageImbalance(spread=0.9).holds(view, up)
    assert not UsageImbalance().holds(view, up)


def test_sglang_follows_the_prefix_above_the_threshold_and_the_load_below() -> None:
    w = World(make_policy("sglang-cache-aware"), a=90_000, b=90_000)
    assert sent_to(w, "s", "t1", 1_000) == "a"
    w.finish("t1", 1_000, 100)
    w.arrive("other", "o1")  # now a has one turn in flight and b none
    assert sent_to(w, "s", "t2", 1_999) == "a"  # 1000 of 1999 is more than half
    w.finish("t2", 1_999, 1)
    w.arrive("third", "o2")
    w.arrive("fourth", "o3")
    w.finish("o2")  # a: o1, o3 in flight or so; the least loaded is b
    loads = {r.id: r.turns_in_flight for r in w.scheduler.view.up_replicas()}
    assert loads == {"a": 2, "b": 0}
    assert sent_to(w, "s", "t3", 3_998) == "b"  # 1999 of 3998 is just half


def test_sglang_gives_up_locality_under_imbalance() -> None:
    w = World(make_policy("sglang-cache-aware"), a=900_000, b=900_000)
    sent_to(w, "s", "t0", 1_000)
    for number in range(1, 33):
        w.arrive("s", f"t{number}", 1_000)  # parallel turns follow their prefix
    assert {r.id: r.turns_in_flight for r in w.scheduler.view.up_replicas()} == {"a": 33, "b": 0}
    assert sent_to(w, "s", "last", 1_000) == "b"  # 33 - 0 > 32


def test_vllm_finds_a_session_again_whatever_its_prompt() -> None:
    w = World(make_policy("vllm-cache-aware"), a=90_000, b=90_000)
    assert sent_to(w, "s", "t1", 1_000) == "a"
    w.finish("t1", 1_000, 100)
    w.arrive("other", "o1")
    assert sent_to(w, "s", "t2", 50_000) == "a"  # 2 % of the prompt match


def test_vllm_gives_up_the_session_under_imbalance() -> None:
    w = World(make_policy("vllm-cache-aware"), a=900_000, b=900_000)
    for number in range(65):
        assert sent_to(w, "s", f"t{number}") == "a"  # parallel turns follow their session
    assert {r.id: r.turns_in_flight for r in w.scheduler.view.up_replicas()} == {"a": 65, "b": 0}
    assert sent_to(w, "s", "last") == "b"  # 65 - 0 > 64
    assert sent_to(w, "s", "more") == "b"  # 65 - 1 is not: where it was sent last


def test_vllm_forgets_a_session_after_an_hour() -> None:
    w = World(make_policy("vllm-cache-aware"), a=90_000, b=90_000)
    w.arrive("s", "t1", 1_000)  # goes on for hours
    w.after(3_601).arrive("other", "o1")
    w.arrive("s", "t2", 50_000)
    assert [d.replica for d in of_kind(w.log, DispatchTurn)] == [
        "a",
        "b",
        "a",
    ]  # least loaded: a tie, the first
    w.finish("o1")
    assert sent_to(w, "s", "t3", 50_000) == "a"  # by the session again


# --- dynamo -------------------------------------------------------------------------------------------------------------


def test_dynamos_cost_in_blocks() -> None:
    router = DynamoKv(block_tokens=16)
    w = World(PerTurnPolicy("dynamo", router), a=90_000, b=90_000)
    view = w.scheduler.view
    assert router.cost(view, ReplicaId("a"), 1_600, 0) == 100 + 100
    assert router.cost(view, ReplicaId("a"), 1_600, 800) == 50 + 100
    w.arrive("s", "t1", 3_200)  # to a: 200 blocks of prefill, 200 of context
    assert router.cost(view, ReplicaId("a"), 1_600, 0) == (200 + 100) + (200 + 100)
    w.first_token("t1")
    w.progress("t1", 320)  # prefill is over; 220 blocks of context
    assert router.cost(view, ReplicaId("a"), 1_600, 0) == 100 + (220 + 100)
    assert router.cost(view, ReplicaId("a"), 1_600, 1_600) == 0 + (220 + 100)
    assert router.cost(view, ReplicaId("b"), 1_600, 0) == 100 + 100


def test_dynamo_leaves_a_prefix_when_its_replica_is_busy() -> None:
    w = World(make_policy("dynamo-kv"), a=900_000, b=900_000)
    assert sent_to(w, "s", "t1", 1_600) == "a"
    w.finish("t1", 1_600, 100)
    assert sent_to(w, "s", "t2", 1_760) == "a"  # 10 + 110 against 110 + 110
    w.finish("t2", 1_760, 100)
    assert sent_to(w, "big", "b1", 8_000) == "a"
    w.first_token("b1")
    assert sent_to(w, "s", "t3", 1_920) == "b"  # 10 + 500 + 120 against 120 + 120


def test_dynamo_counts_a_cached_prefix_of_a_turn_in_flight_as_no_prefill() -> None:
    router = DynamoKv(block_tokens=16)
    w = World(PerTurnPolicy("dynamo", router), a=90_000)
    w.arrive("s", "t1", 1_600)
    w.finish("t1", 1_600, 100)
    w.arrive("s", "t2", 1_760)
    assert router.cost(w.scheduler.view, ReplicaId("a"), 160, 0) == (10 + 10) + (110 + 10)


def test_a_retry_moves_the_load_with_the_turn() -> None:
    router = DynamoKv(block_tokens=16)
    w = World(PerTurnPolicy("dynamo", router), a=90_000, b=90_000)
    w.arrive("s", "t1", 1_600)
    w.fail("t1", retryable=True)
    view = w.scheduler.view
    assert [router.cost(view, ReplicaId(r), 0, 0) for r in "ab"] == [0, 200]


# --- llm-d --------------------------------------------------------------------------------------------------------------


def test_llm_ds_score_is_the_weighted_sum_of_three() -> None:
    router = WeightedScorers()
    w = World(PerTurnPolicy("llm-d", router), a=10_000, b=10_000)
    w.arrive("s", "t1", 4_000)
    turn, session = w.scheduler.view.turns[TurnId("t1")], w.session("s")
    # a: all of the prompt matches, queues are equal, 40 % in use. b: nothing matches, empty.
    scores = router.scores(w.scheduler.view, session, turn, w.at)
    assert scores == {"a": pytest.approx(3 * 1 + 2 * 1 + 2 * 0.6), "b": pytest.approx(0 + 2 + 2)}


def test_llm_d_sees_turns_that_do_not_fit_as_queued() -> None:
    router = WeightedScorers()
    w = World(PerTurnPolicy("llm-d", router), a=10_000, b=10_000)
    view = w.scheduler.view
    w.arrive("s", "t1", 6_000, pinned="a")
    w.arrive("r", "u1", 5_000, pinned="a")
    w.arrive("q", "v1", 1_000, pinned="a")
    turn, session = view.turns[TurnId("v1")], w.session("q")
    # a: u1 and v1 wait behind t1 (11,000 and 12,000 of 10,000), everything is in use; v1 itself matches.
    assert router.scores(view, session, turn, w.at) == {"a": pytest.approx(3.0), "b": pytest.approx(4.0)}
    w.finish("t1", 6_000, 0)
    assert router.scores(view, session, turn, w.at)[ReplicaId("a")] == pytest.approx(3 + 2 + 2 * 0.4)


# --- the ports ----------------------------------------------------------------------------------------------------------


def test_the_view_tells_who_is_admitted_on_a_replica() -> None:
    w = World(make_policy("tao"), a=10_000, b=2_000)
    w.arrive("s", "t1")
    w.finish("t1")
    w.arrive("r", "u1")
    view = w.scheduler.view
    assert [s.id for s in view.admitted_on(ReplicaId("a"))] == ["s", "r"]
    assert [s.id for s in view.acting_on(ReplicaId("a"))] == ["s"]
    assert list(view.admitted_on(ReplicaId("b"))) == []


def test_what_a_router_decides_is_said() -> None:
    scheduler = Scheduler(make_policy("round-robin"))
    scheduler.handle(ReplicaJoined(0.0, ReplicaId("a"), 1_000))
    commands = scheduler.handle(TurnArrived(0.0, TurnId("t"), SessionId("s"), 10))
    [admit] = of_kind(commands, AdmitSession)
    assert admit.reason is Reason.ROUTED
    told = scheduler.explain(SessionId("s"))
    assert told is not None
    assert told["values"] == {"weight_tokens": 10, "turns_in_flight": {"a": 1}}
