"""ThunderAgent's rules, with numbers worked out by hand: budgets, the walk and worst fit, pausing, marks, shadows."""

from math import inf

import pytest
from core_kit import World, of_kind

from tao.core.commands import DispatchTurn, Interruption, InterruptSession, Reason
from tao.core.events import TurnKind
from tao.core.ids import ReplicaId, SessionId
from tao.policies import make_policy
from tao.policies.baselines.sweep import Sweep
from tao.policies.baselines.thunderagent.idleness import FullWeight, HalvingWeight
from tao.policies.baselines.thunderagent.pausing import MarkAll, MarkEnough, pause
from tao.policies.baselines.thunderagent.programs import (
    Group,
    Program,
    acting_on,
    group_of,
    reasoning_on,
    remaining_for_resume,
    remaining_tokens,
)
from tao.policies.baselines.thunderagent.resuming import AnyReplica, OriginFor, Paused, resume
from tao.policies.baselines.thunderagent.shadows import ReleasedPrograms

A, B = ReplicaId("a"), ReplicaId("b")
VARIANTS = [
    "thunderagent",
    "thunderagent-halflife",
    "thunderagent-faithful",
    "thunderagent-no-release",
    "thunderagent-origin",
    "thunderagent-origin-wait",
]


def program(name: str, tokens: int) -> Program:
    return Program(SessionId(name), tokens, acting_since=0.0)


def paused(
    name: str,
    tokens: int,
    group: Group = Group.REASONING,
    *,
    sort_tokens: int | None = None,
    origin: ReplicaId | None = None,
    waited_seconds: float = 0.0,
) -> Paused:
    size = tokens if sort_tokens is None else sort_tokens
    return Paused(program(name, tokens), group, size, origin, waited_seconds)


def placed(
    waiting: list[Paused], room: dict[ReplicaId, int], targets: AnyReplica | OriginFor | None = None
) -> list[tuple[str, str]]:
    return [(p.id, replica) for p, replica in resume(waiting, room, targets or AnyReplica())]


def tick(world: World) -> None:
    """Let the next tick happen."""
    due = world.scheduler.next_wakeup()
    assert due is not None
    world.at = max(world.at, due)
    world.wake()


# --- the walk and the placement ---------------------------------------------------------------------------------------


def test_the_largest_taken_up_goes_where_most_room_is() -> None:
    # 3,100 goes to a (9,000 -> 5,900), 2,100 to b (6,000 -> 3,900), 1,100 to a again.
    waiting = [paused("small", 1_000), paused("large", 3_000), paused("middle", 2_000)]
    assert placed(waiting, {A: 9_000, B: 6_000}) == [("large", "a"), ("middle", "b"), ("small", "a")]


def test_the_walk_passes_over_what_does_not_fit_the_sum_and_goes_on() -> None:
    # Room 5,000 in all: 1,100 + 2,100 are taken up, 3,100 would make 6,300; the new one of 900 makes 4,200.
    waiting = [
        paused("s1", 1_000),
        paused("s2", 2_000),
        paused("s3", 3_000),
        paused("new", 900, Group.FIRST_STEP),
    ]
    assert placed(waiting, {A: 5_000}) == [("s2", "a"), ("s1", "a"), ("new", "a")]


def test_groups_go_before_sizes() -> None:
    waiting = [
        paused("acting", 100, Group.ACTING),
        paused("new", 500, Group.FIRST_STEP),
        paused("returned", 2_000, Group.REASONING),
    ]
    assert placed(waiting, {A: 2_700}) == [("returned", "a"), ("new", "a")]


def test_what_fits_the_sum_but_no_replica_stays_paused() -> None:
    waiting = [paused("large", 3_000), paused("small", 1_000)]
    assert placed(waiting, {A: 2_500, B: 2_400}) == [("small", "a")]


def test_a_replica_with_no_more_room_than_the_buffer_takes_nothing() -> None:
    assert placed([paused("empty", 0)], {A: 100}) == []
    assert placed([paused("empty", 0)], {A: 101}) == [("empty", "a")]
    # After 900 + 100 a has 100 left and is out; the next goes to b, though b has less than a had.
    waiting = [paused("x", 900), paused("y", 0)]
    assert placed(waiting, {A: 1_100, B: 200}) == [("x", "a"), ("y", "b")]


def test_the_walk_goes_by_the_size_when_paused_the_budget_by_the_present_one() -> None:
    waiting = [paused("grown", 3_000, sort_tokens=100), paused("steady", 2_000)]
    assert placed(waiting, {A: 3_500}) == [("grown", "a")]


def test_equal_programs_are_ordered_by_id() -> None:
    waiting = [paused("q", 1_000), paused("p", 1_000)]
    assert placed(waiting, {A: 1_500}) == [("p", "a")]


def test_origin_only_waits_for_its_replica() -> None:
    waiting = [paused("s", 1_000, origin=A), paused("new", 1_000)]
    assert placed(waiting, {A: 500, B: 5_000}, OriginFor(inf)) == [("new", "b")]
    assert placed(waiting, {A: 1_100, B: 5_000}, OriginFor(inf)) == [("new", "b"), ("s", "a")]


def test_programs_of_one_origin_share_its_room_in_the_walk() -> None:
    waiting = [paused("s1", 1_000, origin=A), paused("s2", 1_500, origin=A), paused("s3", 1_600, origin=B)]
    assert placed(waiting, {A: 2_000, B: 5_000}, OriginFor(inf)) == [("s3", "b"), ("s1", "a")]


def test_origin_wait_gives_up_after_its_bound() -> None:
    early = [paused("s", 1_000, origin=A, waited_seconds=7.9)]
    late = [paused("s", 1_000, origin=A, waited_seconds=8.0)]
    assert placed(early, {A: 500, B: 5_000}, OriginFor(8.0)) == []
    assert placed(late, {A: 500, B: 5_000}, OriginFor(8.0)) == [("s", "b")]


def test_no_program_goes_where_no_more_than_the_buffer_is_left() -> None:
    # 3,100 each leave 100 on a and on b: together enough for one more, and on neither of them.
    waiting = [paused("one", 3_000), paused("two", 3_000), paused("empty", 0)]
    assert placed(waiting, {A: 3_200, B: 3_200}) == [("one", "a"), ("two", "b")]


# --- pausing ------------------------------------------------------------------------------------------------------------


def test_the_smallest_acting_programs_give_way_until_the_budget_holds() -> None:
    programs = [program("large", 3_000), program("small", 500), program("middle", 900)]
    chosen, over_tokens = pause(1_500, programs)
    assert ([p.id for p in chosen], over_tokens) == (["small", "middle"], -100)  # 600 + 1,000
    chosen, over_tokens = pause(9_000, programs)
    assert ([p.id for p in chosen], over_tokens) == (["small", "middle", "large"], 4_300)


def test_marks_are_given_until_they_will_free_enough_or_to_all() -> None:
    running = [program("large", 3_000), program("small", 500), program("middle", 900)]
    assert [p.id for p in MarkEnough().marks(700, running, 0)] == ["small", "middle"]
    assert [p.id for p in MarkEnough().marks(700, running, 200)] == ["small"]
    assert [p.id for p in MarkEnough().marks(700, running, 700)] == []
    assert [p.id for p in MarkEnough().marks(9_999, running, 0)] == ["small", "middle", "large"]  # not enough
    assert [p.id for p in MarkAll().marks(1, running, 9_999)] == ["small", "middle", "large"]


# --- budgets ------------------------------------------------------------------------------------------------------------


def test_idle_weights() -> None:
    assert [HalvingWeight().after(s) for s in (0.0, 1.0, 2.0)] == [1.0, 0.5, 0.25]
    assert HalvingWeight(10.0).after(10.0) == 0.5
    assert FullWeight().after(1e9) == 1.0


def test_the_room_for_resuming_discounts_idle_programs() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    w.arrive("s", "t1", 2_000)
    w.arrive("r", "u1", 1_000)
    w.finish("t1", 2_000, 400)
    view, none = w.scheduler.view, ReleasedPrograms()
    assert remaining_tokens(view, none, A) == 10_000 - (2_400 + 100) - (1_000 + 100)
    w.after(1.0)
    assert remaining_for_resume(view, none, A, HalvingWeight(), w.at) == 6_400 + 1_200
    assert remaining_for_resume(view, none, A, FullWeight(), w.at) == 6_400
    assert [p.id for p in acting_on(view, none, A)] == ["s"]
    assert [p.id for p in reasoning_on(view, A)] == ["r"]


# --- the policy on the core ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", VARIANTS)
def test_a_new_program_goes_where_fewest_tokens_are_if_there_is_room(policy: str) -> None:
    w = World(make_policy(policy), a=10_000, b=6_000)
    assert [d.replica for d in of_kind(w.arrive("s", "t1", 3_000), DispatchTurn)] == ["a"]
    assert [d.replica for d in of_kind(w.arrive("r", "u1", 2_000), DispatchTurn)] == ["b"]
    # a holds 3,000 tokens, b 2,000; 3,900 + 100 just fit on b (3,900 free), no: a has 6,900.
    assert [d.replica for d in of_kind(w.arrive("q", "v1", 3_900), DispatchTurn)] == ["a"]
    assert of_kind(w.arrive("p", "x1", 3_900), DispatchTurn) == []  # 2,900 and 3,900 free


@pytest.mark.parametrize("policy", VARIANTS)
def test_while_anybody_is_paused_new_programs_wait_for_the_tick(policy: str) -> None:
    w = World(make_policy(policy), a=10_000)
    w.arrive("s", "t1", 8_000)
    assert of_kind(w.arrive("big", "b1", 5_000), DispatchTurn) == []
    assert of_kind(w.arrive("small", "c1", 500), DispatchTurn) == []
    tick(w)
    tick(w)
    [dispatch] = of_kind(w.log, DispatchTurn)[1:]
    assert (dispatch.session, dispatch.reason) == ("small", Reason.RULE)


def test_an_active_program_passes_whatever_the_budget_says() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    w.arrive("s", "t1", 6_000)
    w.finish("t1", 6_000, 500)
    w.arrive("r", "u1", 3_000)
    [dispatch] = of_kind(w.arrive("s", "t2", 9_000), DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.HOME)
    assert w.free("a") < 0


def test_the_tick_pauses_the_smallest_acting_program_of_an_overfull_replica() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    for session, tokens in (("s", 2_000), ("r", 3_000), ("q", 4_000)):
        w.arrive(session, f"{session}1", tokens)
        w.finish(f"{session}1", tokens, 100)
    w.after(4.0).arrive("q", "q2", 5_000)
    assert w.free("a") == 10_000 - 2_200 - 3_200 - 5_100
    w.log.clear()
    w.after(1.0).wake()
    assert of_kind(w.log, InterruptSession) == [
        InterruptSession(SessionId("s"), A, Interruption.OVERCOMMITTED)
    ]
    assert group_of(w.session("s")) is Group.FIRST_STEP  # it has asked once only


def test_a_paused_program_waits_for_the_tick_even_when_there_is_room_again() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    for session, tokens in (("s", 2_000), ("q", 7_000)):
        w.arrive(session, f"{session}1", tokens)
        w.finish(f"{session}1", tokens, 100)
    w.after(4.0).arrive("q", "q2", 8_000)
    w.after(1.0).wake()
    assert w.session("s").home is None
    w.finish("q2", 8_000, 100)
    w.end("q")
    w.after(1.0).arrive("s", "s2", 2_500)
    assert w.session("s").home is None
    assert w.scheduler.next_wakeup() == 10.0
    w.after(4.0).wake()
    assert w.session("s").home == "a"


def test_running_programs_are_marked_and_paused_when_their_request_ends() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    for session, tokens in (("s", 2_000), ("r", 3_000), ("q", 4_000)):
        w.arrive(session, f"{session}1", tokens)
    w.progress("q1", 1_000)
    assert w.free("a") == -300
    w.after(5.0).wake()
    told = w.scheduler.explain(SessionId("s"))
    assert told is not None
    assert told["values"]["marked_for_pause"] is True  # type: ignore[index]
    w.finish("r1", 3_000, 100)
    assert w.session("r").home == "a"  # unmarked: marking s is enough
    w.finish("s1", 2_000, 100)
    assert w.session("s").home is None
    assert of_kind(w.log, InterruptSession) == [InterruptSession(SessionId("s"), A, Interruption.GAVE_WAY)]


def test_the_original_marks_every_running_program() -> None:
    w = World(make_policy("thunderagent-faithful"), a=10_000)
    for session, tokens in (("s", 2_000), ("r", 3_000), ("q", 4_000)):
        w.arrive(session, f"{session}1", tokens)
    w.progress("q1", 1_000)
    w.after(5.0).wake()
    for session, tokens in (("s", 2_000), ("r", 3_000), ("q", 4_000)):
        w.finish(f"{session}1", tokens, 100)
        assert w.session(session).home is None


def test_a_mark_is_used_up_once() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    w.arrive("s", "s1", 4_000)
    w.arrive("r", "r1", 5_000)
    w.progress("r1", 1_000)
    w.after(5.0).wake()  # s is marked
    w.finish("s1", 4_000, 100)
    w.finish("r1", 5_000, 100)
    w.end("r")
    tick(w)
    assert w.session("s").home == "a"
    w.arrive("s", "s2", 4_500)
    w.finish("s2", 4_500, 100)
    assert w.session("s").home == "a"


def test_decay_lets_a_tick_resume_beyond_the_capacity_and_pauses_in_the_same_tick() -> None:
    def world(policy: str) -> World:
        w = World(make_policy(policy), a=10_000)
        w.arrive("idle", "i1", 6_000)
        w.finish("i1", 6_000, 100)
        w.arrive("new", "n1", 5_600)
        w.after(5.0).wake()
        return w

    decayed = world("thunderagent")  # 3,800 free and 6,100 * 31 / 32 discounted
    assert decayed.session("new").home == "a"
    assert decayed.session("idle").home is None
    assert world("thunderagent-faithful").session("new").home is None
    assert world("thunderagent-halflife").session("new").home is None  # 3,800 and 6,100 * 29 %


def test_halflife_sweeps_every_second() -> None:
    w = World(make_policy("thunderagent-halflife"), a=10_000)
    w.after(0.3).arrive("s", "t1", 9_000)
    w.arrive("r", "u1", 9_000)
    tick(w)
    assert w.scheduler.next_wakeup() == 1.0


@pytest.mark.parametrize(
    ("policy", "home_at_10", "home_at_15"),
    [
        ("thunderagent", "b", "b"),
        ("thunderagent-origin", None, None),
        ("thunderagent-origin-wait", None, "b"),
    ],
)
def test_where_a_paused_program_comes_back(
    policy: str, home_at_10: str | None, home_at_15: str | None
) -> None:
    w = World(make_policy(policy), a=10_000, b=9_000)
    w.arrive("s", "s1", 2_000)
    w.finish("s1", 2_000, 100)
    w.arrive("r", "r1", 4_000)
    w.arrive("q", "q1", 7_000)
    assert [w.session(name).home for name in "srq"] == ["a", "b", "a"]
    w.after(4.0).progress("q1", 1_500)
    w.after(1.0).wake()
    assert w.session("s").home is None  # a was over its budget by 900
    w.after(1.0).arrive("s", "s2", 2_500)
    w.after(4.0).wake()
    assert w.session("s").home == home_at_10
    w.after(5.0).wake()
    assert w.session("s").home == home_at_15


# --- shadows ------------------------------------------------------------------------------------------------------------


def test_without_releases_a_session_that_has_ended_keeps_its_room() -> None:
    homes = {}
    for policy in ("thunderagent-no-release", "thunderagent"):
        w = World(make_policy(policy), a=10_000)
        w.arrive("gone", "g1", 6_000)
        w.finish("g1", 6_000, 100)
        w.end("gone")
        assert w.reserved("a") == 0
        w.arrive("new", "n1", 5_000)
        homes[policy] = w.session("new").home
    assert homes == {"thunderagent-no-release": None, "thunderagent": "a"}


def test_a_shadow_is_paused_and_resumed_like_a_program() -> None:
    w = World(make_policy("thunderagent-no-release"), a=10_000)
    w.arrive("gone", "g1", 6_000)
    w.finish("g1", 6_000, 100)
    w.end("gone")
    w.arrive("new", "n1", 5_000)
    w.after(5.0).wake()
    assert w.session("new").home == "a"  # the decay made room, and the shadow was paused
    w.finish("n1", 5_000, 100)
    w.end("new")
    assert w.arrive("next", "x1", 2_000) == []  # a program is paused: everybody waits for the tick
    w.after(5.0).wake()
    assert w.session("next").home == "a"


def test_side_turns_leave_no_shadow() -> None:
    w = World(make_policy("thunderagent-no-release"), a=10_000)
    w.arrive("s", "side", 6_000, TurnKind.SIDE)
    w.finish("side", 6_000)
    assert of_kind(w.arrive("new", "n1", 9_000), DispatchTurn)


def test_a_failed_request_leaves_a_phantom_until_the_next_one() -> None:
    w = World(make_policy("thunderagent-faithful"), a=10_000, b=3_000)
    w.arrive("s", "s1", 6_000)
    w.fail("s1")
    assert w.reserved("a") == 0
    assert of_kind(w.arrive("new", "n1", 5_000), DispatchTurn) == []  # for ThunderAgent a has 3,900 left
    [dispatch] = of_kind(w.arrive("s", "s2", 6_000), DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.RULE)  # it is still ACTIVE there
    w.finish("s2", 6_000, 100)
    w.end("s")
    tick(w)
    assert w.session("new").home == "a"


def test_the_mended_variants_leave_no_phantom() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    w.arrive("s", "s1", 6_000)
    w.fail("s1")
    assert of_kind(w.arrive("new", "n1", 5_000), DispatchTurn)


def test_a_parallel_request_that_fails_leaves_no_phantom() -> None:
    w = World(make_policy("thunderagent-faithful"), a=20_000)
    w.arrive("s", "s1", 6_000)
    w.arrive("s", "s2", 6_000)
    w.fail("s2")
    w.finish("s1", 6_000, 100)
    w.end("s")
    assert of_kind(w.arrive("new", "n1", 19_000), DispatchTurn)


# --- the tick -----------------------------------------------------------------------------------------------------------


def test_a_sweep_keeps_to_its_grid_after_a_quiet_spell_and_when_a_wake_up_is_late() -> None:
    w = World(make_policy("thunderagent"), a=10_000)
    assert w.scheduler.next_wakeup() is None  # nothing is open
    w.after(102.0).arrive("s", "t1", 1_000)
    assert w.scheduler.next_wakeup() == 105.0
    w.after(3.4).wake()  # 0.4 s late
    assert w.scheduler.next_wakeup() == 110.0


def test_a_sweep_at_a_moment_of_its_grid_goes_to_the_next() -> None:
    sweep = Sweep(5.0)
    sweep.ticked(15.0)
    w = World(make_policy("round-robin"), a=1)
    w.arrive("s", "t")
    assert sweep.next_at(w.scheduler.view) == 20.0
