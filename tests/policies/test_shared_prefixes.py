"""What sessions begin with alike takes room on a replica once: at admission, in a plan, when somebody is interrupted."""

from core_kit import World, of_kind
from hypothesis import given
from hypothesis import strategies as st
from sim_kit import PROFILE, session, tool, turn

from tao.core.commands import AdmitSession, ComputePlan, Interruption, InterruptSession, Reason
from tao.core.events import PrefixNode, TurnKind
from tao.core.ids import ReplicaId
from tao.policies import make_policy
from tao.policies.reserve import RESERVE_TOKENS
from tao.sim.run import Order, RunSpec, run
from tao.sim.workload import ClosedLoop, WorkloadSettings
from tao.traces import TraceSession

TOOLS, SYSTEM = PrefixNode("tools", 4_000), PrefixNode("tools, system", 1_000)
BEGINNING = (TOOLS, SYSTEM)
OWN = 1_000 + RESERVE_TOKENS
"""What a session of 6,000 tokens costs where its beginning is there already."""


def arrive(w: World, name: str, tokens: int = 6_000, beginning: tuple[PrefixNode, ...] = BEGINNING) -> None:
    w.arrive(name, f"{name}1", tokens, shared_prefix=beginning)


def admissions(w: World) -> dict[str, tuple[str, int]]:
    return {admit.session: (admit.replica, admit.weight_tokens) for admit in of_kind(w.log, AdmitSession)}


def test_the_second_session_is_admitted_for_what_is_its_own() -> None:
    w = World(make_policy("tao"), a=20_000)
    arrive(w, "p")
    arrive(w, "q")
    assert admissions(w) == {"p": ("a", 5_000 + OWN), "q": ("a", OWN)}
    assert w.free("a") == 20_000 - 5_000 - 2 * OWN


def test_a_policy_that_books_whole_sessions_holds_where_sharing_admits() -> None:
    for policy, admitted in (("tao", "pqr"), ("tao-no-sharing", "pq")):
        w = World(make_policy(policy), a=17_000)
        for name in "pqr":
            arrive(w, name)
        assert "".join(admissions(w)) == admitted, policy


def test_the_beginning_stays_booked_until_the_last_of_them_is_gone() -> None:
    w = World(make_policy("tao"), a=20_000)
    arrive(w, "p")
    arrive(w, "q")
    for name in "pq":
        w.finish(f"{name}1", 6_000, 0)
    w.end("p")
    assert w.free("a") == 20_000 - 5_000 - OWN
    w.end("q")
    assert w.free("a") == 20_000


def test_a_plan_takes_off_what_every_replica_holds_and_nothing_that_only_one_holds() -> None:
    w = World(make_policy("tao"), a=20_000, b=20_000)
    arrive(w, "p", 12_000)  # on a
    w.arrive("x", "x1", 15_000)  # on b
    arrive(w, "q", 15_000)  # 10,512 beside what a holds, where 7,488 are free; 15,512 on b
    arrive(w, "r", 11_000)
    assert admissions(w).keys() == {"p", "x"}
    w.finish("x1", 15_000, 0)
    w.end("x")
    [plan] = of_kind(w.after(1.0).wake(), ComputePlan)
    assert {one.session: one.weight_tokens for one in plan.request.candidates} == {
        "q": 15_000 + RESERVE_TOKENS,
        "r": 11_000 + RESERVE_TOKENS,
    }
    w.answer(plan, ("q", "b"))
    assert admissions(w)["q"] == ("b", 15_000 + RESERVE_TOKENS)
    w.after(1.0)
    w.finish("p1", 12_000, 0)
    w.end("p")
    arrive(w, "s", 12_000)  # a is empty: it costs all of its tokens there
    w.run_for(1.0)
    assert admissions(w)["s"] == ("a", 12_000 + RESERVE_TOKENS)
    w.finish("s1", 8_000, 0)  # shorter than was thought
    [plan] = of_kind(w.after(1.0).wake(), ComputePlan)
    [candidate] = plan.request.candidates
    assert (candidate.session, candidate.weight_tokens) == ("r", 6_000 + RESERVE_TOKENS), "both hold it"
    w.solve(plan)
    assert admissions(w)["r"] == ("a", 6_000 + RESERVE_TOKENS)


def test_who_fits_only_where_its_beginning_lies_is_planned_for_there() -> None:
    w = World(make_policy("tao"), a=20_000, b=20_000)
    w.arrive(
        "p", "p1", 10_000, shared_prefix=(PrefixNode("task", 9_000),)
    )  # on a, where 9,488 tokens are free then
    w.arrive("x", "x1", 12_000)  # on b
    w.arrive("y", "y1", 12_000)  # fits nowhere
    w.arrive("q", "q1", 10_000, shared_prefix=(PrefixNode("task", 9_000),))
    assert admissions(w).keys() == {"p", "x"}
    [plan] = of_kind(w.after(1.0).wake(), ComputePlan)
    [candidate] = plan.request.candidates
    assert (candidate.session, candidate.weight_tokens) == ("q", 1_000 + RESERVE_TOKENS)
    assert candidate.eligible == ("a",)
    w.solve(plan)
    assert admissions(w)["q"] == ("a", 1_000 + RESERVE_TOKENS)
    w.run_for(30.0)
    assert "y" not in admissions(w)


def test_what_an_interrupt_gives_back_is_what_nobody_else_holds() -> None:
    w = World(make_policy("tao"), a=20_000)
    for name in "pqr":
        arrive(w, name)
        w.finish(f"{name}1", 6_000, 0)
    w.resize("a", 5_000 + 2 * OWN)
    w.after(1.0).wake()
    interrupts = of_kind(w.log, InterruptSession)
    assert [one.reason for one in interrupts] == [Interruption.OVERCOMMITTED]
    w.resize("a", 5_000 + OWN)
    w.after(1.0).wake()
    assert len(of_kind(w.log, InterruptSession)) == 2
    assert w.free("a") == 0


def test_nobody_is_interrupted_for_room_that_the_last_who_shares_a_beginning_gives_back() -> None:
    w = World(make_policy("tao"), a=40_000)
    for name in "pq":
        arrive(w, name)
        w.finish(f"{name}1", 6_000, 0)
    w.arrive("r", "r1", 20_000)
    w.finish("r1", 20_000, 0)
    w.resize("a", 21_000)
    w.after(1.0).wake()
    assert [one.session for one in of_kind(w.log, InterruptSession)] == ["p", "q"]
    assert w.free("a") == 21_000 - 20_000 - RESERVE_TOKENS


def test_who_may_go_to_one_replica_only_costs_what_it_costs_there() -> None:
    w = World(make_policy("tao"), a=20_000, b=20_000)
    arrive(w, "p")  # on a
    w.arrive("x", "x1", 15_000, pinned="b")
    w.arrive("y", "y1", 12_000, pinned="a")
    w.arrive("q", "q1", 14_000, shared_prefix=BEGINNING, pinned="a")
    w.arrive("r", "r1", 14_000, shared_prefix=BEGINNING)
    [plan] = of_kind(w.after(1.0).wake(), ComputePlan)
    assert {one.session: (one.weight_tokens, one.eligible) for one in plan.request.candidates} == {
        "q": (9_000 + RESERVE_TOKENS, ("a",)),
        "r": (9_000 + RESERVE_TOKENS, ("a",)),  # b has no room for it
    }


def test_another_model_has_nothing_of_the_beginning_that_was_told_for_the_one_before() -> None:
    w = World(make_policy("tao"), a=20_000)
    for name in "pq":
        w.arrive(name, f"{name}1", 6_000, model="one", shared_prefix=BEGINNING)
    w.finish("q1", 6_000, 0)
    w.arrive("q", "q2", 7_000, model="other")  # nothing is known of how it begins
    assert w.session("q").shared_prefix == ()
    assert w.free("a") == 20_000 - (6_000 + RESERVE_TOKENS) - (7_000 + RESERVE_TOKENS)


def test_a_context_that_starts_afresh_may_begin_otherwise() -> None:
    w = World(make_policy("tao"), a=20_000)
    arrive(w, "p")
    arrive(w, "q")
    w.finish("q1", 6_000, 0)
    w.arrive("q", "q2", 2_000, TurnKind.RESET, shared_prefix=(PrefixNode("other", 1_500),))
    assert w.free("a") == 20_000 - 5_000 - OWN - 2_000 - RESERVE_TOKENS
    w.finish("q2", 2_000, 0)
    w.arrive("q", "q3", 2_500)  # nothing is known of its beginning: it is as it was
    assert w.session("q").shared_prefix == (PrefixNode("other", 1_500),)


def test_a_beginning_longer_than_its_prompt_is_cut() -> None:
    w = World(make_policy("tao"), a=20_000)
    arrive(w, "p")
    arrive(w, "q", 4_500)
    assert w.session("q").shared_prefix == (TOOLS,)
    assert admissions(w)["q"] == ("a", 500 + RESERVE_TOKENS)


def test_of_replicas_with_equal_credit_and_room_beside_the_beginning_the_one_that_holds_it_is_enough() -> (
    None
):
    w = World(make_policy("tao"), a=20_000, b=3_000)
    arrive(w, "p")
    w.log.clear()
    arrive(w, "q", 14_000)
    [admit] = of_kind(w.log, AdmitSession)
    assert (admit.replica, admit.reason, admit.weight_tokens) == ("a", Reason.ROOM, 9_000 + RESERVE_TOKENS)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_free_tokens_never_exceed_the_capacity_and_come_back_whole(groups: list[int]) -> None:
    w = World(make_policy("tao"), a=60_000)
    for number, group in enumerate(groups):
        beginning = (TOOLS, PrefixNode(f"system {group}", 700))
        w.arrive(f"s{number}", f"t{number}", 5_000, shared_prefix=beginning)
    own = len(groups) * (5_000 - 4_700 + RESERVE_TOKENS)
    assert w.free("a") == 60_000 - 4_000 - 700 * len(set(groups)) - own
    for number in range(len(groups)):
        w.finish(f"t{number}", 5_000, 0)
        w.end(f"s{number}")
    assert w.free("a") == 60_000 == w.scheduler.view.replicas[ReplicaId("a")].capacity_tokens


def longest_hold(policy: str, *sessions: TraceSession, system_tokens: int = 0, group_size: int = 1) -> float:
    spec = RunSpec(
        policy,
        PROFILE,
        1,
        ClosedLoop(6),
        ("t",),
        order=Order(group_size=group_size),
        workload=WorkloadSettings(system_tokens=system_tokens),
    )
    result = run(spec, {"t": sessions})
    assert result.violations == ()
    assert result.summary.hold_seconds.max is not None
    return result.summary.hold_seconds.max


def test_simulated_sessions_of_one_source_share_their_system_prompt() -> None:
    """Nobody waits for room that is there, and the checkers agree that nothing is overfilled."""
    sessions = [
        session(f"s{n}", turn(3_000, 10, tool(0.5)), turn(3_200, 10, tool(0.5)), turn(3_400), source="x")
        for n in range(12)
    ]
    assert longest_hold("tao", *sessions, system_tokens=2_500) == 0
    assert longest_hold("tao-no-sharing", *sessions, system_tokens=2_500) > 0.5


def test_simulated_rollouts_of_one_prompt_share_it() -> None:
    one = session("s", turn(3_000, 10, tool(0.5)), turn(3_200, 10, tool(0.5)), turn(3_400), source="x")
    assert longest_hold("tao", one, group_size=12) == 0
    assert longest_hold("tao-no-sharing", one, group_size=12) > 0.5
