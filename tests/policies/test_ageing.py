"""Whoever has waited too long goes first under `tao`, and room is kept for it."""

from core_kit import World, of_kind

from tao.core.commands import AdmitSession, ComputePlan
from tao.core.events import PlanReady
from tao.planning import solve
from tao.policies import assignments_of, make_policy, problem_of


def plan(world: World) -> list[AdmitSession]:
    """Wake the scheduler, answer its plan, and return who was admitted."""
    [compute] = of_kind(world.wake(), ComputePlan)
    answer = solve(problem_of(compute.request), compute.request.solver)
    assignments = assignments_of(compute.request, answer.assignment)
    return of_kind(world.send(PlanReady(world.at, compute.plan, assignments)), AdmitSession)


def crowded(policy: str) -> World:
    """Two small sessions run; a large one waits that fits only when both are gone."""
    world = World(make_policy(policy), a=10_000)
    world.arrive("s1", "s1/1", 3_900)
    world.arrive("s2", "s2/1", 3_900)
    world.arrive("large", "l/1", 8_000)
    return world


def test_room_is_kept_for_one_that_waited_too_long() -> None:
    world = crowded("tao")
    world.after(70).arrive("small", "x/1", 3_000)
    world.finish("s1/1", 3_900, 1)
    world.end("s1")
    assert plan(world) == []  # the newcomer would fit, but the room is kept
    world.finish("s2/1", 3_900, 1)
    world.end("s2")
    [admitted] = plan(world.after(1))
    assert admitted.session == "large"


def test_the_paper_lets_the_newcomer_pass() -> None:
    world = crowded("tao-paper")
    world.after(70).arrive("small", "x/1", 3_000)
    world.finish("s1/1", 3_900, 1)
    world.end("s1")
    [admitted] = plan(world)
    assert admitted.session == "small"


def test_before_the_bound_waiting_does_not_count() -> None:
    world = crowded("tao")
    world.after(50).arrive("small", "x/1", 3_000)
    world.finish("s1/1", 3_900, 1)
    world.end("s1")
    [admitted] = plan(world)
    assert admitted.session == "small"
