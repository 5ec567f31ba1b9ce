"""Slots: how many sessions a replica takes at once, beside its tokens. They bind, they are given back, they are optional."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from core_kit import World, of_kind
from sim_kit import PROFILE, session, simulate, turn

from tao.core.commands import AdmitSession, CloseSession, Command, ComputePlan, InterruptSession
from tao.core.events import Event, EventError, PlanReady, ReplicaJoined, TurnArrived
from tao.core.ids import ReplicaId, SessionId
from tao.planning import Knapsack, solve
from tao.policies import make_policy, problem_of
from tao.record.measure import TurnMeasurement
from tao.sim.workload import ClosedLoop

A, B = ReplicaId("a"), ReplicaId("b")


def world(policy: str = "tao", **slots: int | None) -> World:
    """Replicas with far more tokens than anybody needs."""
    w = World(make_policy(policy))
    for replica, count in slots.items():
        w.send(ReplicaJoined(w.at, ReplicaId(replica), 1_000_000, slots=count))
    return w


@pytest.mark.parametrize("policy", ["tao", "tao-paper"])
def test_a_replica_takes_no_more_sessions_than_it_has_slots(policy: str) -> None:
    w = world(policy, a=2)
    for name in ("x", "y", "z"):
        w.arrive(name, f"{name}1", 1_000)
    assert w.scheduler.view.waiting_sessions == 1
    assert w.scheduler.view.free_slots(A) == 0
    assert w.free("a") > 900_000
    w.after(1).wake()
    assert of_kind(w.log, ComputePlan) == []  # nobody can be placed
    w.finish("x1", 1_000, 10)
    w.end("x")
    assert w.scheduler.view.free_slots(A) == 1
    w.after(1).wake()
    [compute] = of_kind(w.log, ComputePlan)
    assert problem_of(compute.request).knapsacks[0].slots == 1


def test_slots_are_a_second_resource_of_the_plan() -> None:
    w = world(a=1, b=None)
    w.arrive("x", "x1", 1_000)
    w.arrive("y", "y1", 900)
    assert w.scheduler.view.free_slots(B) is None
    [first, second] = of_kind(w.log, AdmitSession)
    assert {first.replica, second.replica} == {"a", "b"}


def test_a_late_plan_is_cut_to_the_slots_that_are_left() -> None:
    w = world(a=2)
    for name in ("x", "y", "z", "u"):
        w.arrive(name, f"{name}1", 1_000)
    for turn_id in ("x1", "y1"):
        w.finish(turn_id, 1_000, 10)
    w.end("x")
    w.end("y")
    w.after(1).wake()
    [compute] = of_kind(w.log, ComputePlan)
    problem = problem_of(compute.request)
    assert problem.knapsacks == (Knapsack("a", problem.knapsacks[0].capacity_tokens, 2),)
    assert len(solve(problem, "exact").assignment) == 2
    # A plan that knows nothing of slots: as one would come from a snapshot with more of them.
    w.send(ReplicaJoined(w.at, A, 1_000_000, slots=1))
    everybody = tuple((SessionId(name), A) for name in ("z", "u"))
    admitted = of_kind(
        w.send(PlanReady(w.at, compute.plan, everybody, "exact", "optimal", 0.0)), AdmitSession
    )
    assert [command.session for command in admitted] == ["z"]


def test_a_replica_needs_a_slot() -> None:
    with pytest.raises(EventError, match="0 slots"):
        ReplicaJoined(0.0, A, 1_000, slots=0)


def test_slots_that_do_not_bind_change_nothing_and_those_that_do_are_kept() -> None:
    sessions = [session(f"s{n}", *(turn(1_500 + 400 * t + 37 * n, 60) for t in range(6))) for n in range(12)]

    def played(max_running: int) -> tuple[list[TurnMeasurement], int]:
        watch = MostAdmitted()
        simulation = simulate(
            *sessions,
            policy="tao",
            replicas=2,
            arrivals=ClosedLoop(12),
            profile=replace(PROFILE, max_running=max_running),
            observers=[watch],
        )
        return simulation.measurements, watch.most

    as_it_is, most = played(12)
    assert played(100_000) == (as_it_is, most)
    bound, fewer = played(2)
    assert (most > 2, fewer) == (True, 2)
    assert len(bound) == len(as_it_is)


class MostAdmitted:
    """How many sessions one replica had at most."""

    watches = frozenset({TurnArrived})

    def __init__(self) -> None:
        self.most = 0
        self._home: dict[SessionId, ReplicaId] = {}

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case AdmitSession():
                    self._home[command.session] = command.replica
                case InterruptSession() | CloseSession():
                    self._home.pop(command.session, None)
        counts = Counter(self._home.values())
        self.most = max(self.most, *counts.values(), 0)

    def end(self, at: float) -> None:
        """Nothing to close."""
