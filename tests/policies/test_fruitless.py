"""A decision that placed nobody is not computed again until somebody might be placed."""

import pytest
from core_kit import World, of_kind

from tao.core.commands import ComputePlan
from tao.core.events import PlanReady
from tao.core.ids import PlanId, ReplicaId, SessionId
from tao.policies import make_policy
from tao.policies.fruitless import FruitlessDecision, Question

A, B, S, T = ReplicaId("a"), ReplicaId("b"), SessionId("s"), SessionId("t")


def question(a: int = 50, b: int = 60, weight: int = 55, *, aged: bool = False) -> Question:
    return Question({S: (weight, aged)}, {A: a, B: b})


def ready(*, placed: bool = False, status: str = "optimal") -> PlanReady:
    return PlanReady(1.0, PlanId(1), ((S, A),) if placed else (), "exact", status)


@pytest.mark.parametrize(
    ("following", "again"),
    [
        (question(), True),
        (question(a=40), True),
        (question(a=51), False),
        (question(weight=54), False),
        (question(aged=True), False),
        (Question({S: (55, False), T: (58, False)}, {A: 50, B: 60}), False),
        (Question({}, {A: 50, B: 60}), False),
        (Question({S: (55, False)}, {A: 50}), False),
        (None, False),
    ],
)
def test_only_what_is_no_easier_need_not_be_asked_again(following: Question | None, *, again: bool) -> None:
    last = FruitlessDecision()
    assert not last.would_come_again(question())
    last.answered(ready())
    assert last.would_come_again(following) is again


@pytest.mark.parametrize("answer", [ready(placed=True), ready(status="feasible"), ready(status="fallback")])
def test_a_decision_that_placed_somebody_or_is_not_proved_says_nothing(answer: PlanReady) -> None:
    last = FruitlessDecision()
    last.would_come_again(question())
    last.answered(answer)
    assert not last.would_come_again(question())


def test_what_was_asked_meanwhile_is_what_counts() -> None:
    last = FruitlessDecision()
    last.would_come_again(question())
    last.answered(ready())
    assert not last.would_come_again(question(a=90))
    assert not last.would_come_again(question())  # not answered yet


def test_while_room_is_kept_for_the_oldest_the_others_are_not_planned_over_and_over() -> None:
    w = World(make_policy("tao"), a=10_000)
    w.arrive("x", "x1", 6_000)
    w.arrive("large", "l1", 8_000)
    w.after(61.0).arrive(
        "small", "s1", 1_000
    )  # would fit, but room is kept for the one that has waited a minute
    [plan] = of_kind(w.wake(), ComputePlan)
    assert w.solve(plan) == []
    for _ in range(5):
        assert of_kind(w.after(1.0).wake(), ComputePlan) == []
    w.finish("x1", 6_000, 100)
    w.end("x")
    [plan] = of_kind(w.after(1.0).wake(), ComputePlan)
    assert w.scheduler.view.waiting_sessions == 2
