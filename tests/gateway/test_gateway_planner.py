"""Plans of the live driver: small ones here, large ones in the planner's process, and what answers when that fails."""

import asyncio
import re
from typing import Any

import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import InlineSolver, fronted, until, words

from tao.core import Scheduler
from tao.core.commands import AdmitSession, ComputePlan, DispatchTurn, Reason
from tao.core.events import PlanFailed, PlanReady
from tao.core.ids import PlanId, ReplicaId, SessionId
from tao.core.plans import Candidate, PlanRequest
from tao.gateway.metrics import GatewayMetrics
from tao.gateway.planner import Planner, PlannerFigures
from tao.planning import Answer, PlanCrashError, PlanFailedError, PlanTimeoutError, PlanWorker, Problem
from tao.policies import make_policy


def plan(candidates: int) -> ComputePlan:
    """So many sessions over three replicas."""
    replicas = {ReplicaId(name): 10_000 for name in ("a", "b", "c")}
    waiting = tuple(
        Candidate(
            session=SessionId(f"s{number}"),
            epoch=1,
            weight_tokens=1_000 + number,
            footprint_tokens=500 + number,
            ready=1,
            credit_tokens={},
            waited_seconds=0.0,
        )
        for number in range(candidates)
    )
    return ComputePlan(PlanId(1), PlanRequest("dp", replicas, waiting))


class Breaks(InlineSolver):
    """A planner's process that fails in one way."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def solve(self, problem: Problem, solver: str, deadline_seconds: float) -> Answer:
        self.asked += 1
        raise self.error


async def test_small_problems_are_solved_here() -> None:
    solver = Breaks(PlanCrashError("never asked"))
    answer, ready = await Planner(solver, 1.0).answer(plan(2))
    assert solver.asked == 0
    assert answer.status != "fallback"
    assert len(ready.assignments) == 2


async def test_large_ones_go_to_the_process() -> None:
    worker = PlanWorker()
    planner = Planner(worker, 30.0)
    await planner.start()
    try:
        _, ready = await planner.answer(plan(24))
    finally:
        await planner.close()
    assert len(ready.assignments) == 24
    assert worker.stats.plans == 1
    assert (planner.figures.plans, planner.figures.fallbacks) == (1, 0)
    assert ready.elapsed_seconds > 0


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (PlanCrashError("it ended"), "crash"),
        (PlanTimeoutError("no plan within 1 s"), "timeout"),
        (PlanFailedError("division by zero"), "raised"),
    ],
)
async def test_when_the_process_fails_the_fallback_answers(
    error: Exception, cause: str, logs: list[dict[str, Any]]
) -> None:
    planner = Planner(Breaks(error), 1.0)
    answer, ready = await planner.answer(plan(24))
    assert (answer.solver, answer.status, ready.status) == ("bfd", "fallback", "fallback")
    assert len(ready.assignments) == 24, "there is room for all, so nobody waits for a planner"
    assert (planner.figures.failures, planner.figures.fallbacks) == (1, 1)
    assert {name for name, count in planner.figures.failures_by.items() if count} == {cause}
    (entry,) = logs
    assert entry["event"] == "planner failed, using the fallback"
    assert str(error) in entry["error"]


async def test_a_defect_of_the_planner_does_not_end_planning(logs: list[dict[str, Any]]) -> None:
    """It is told to the core, which asks again; the session waits for that and not for ever."""
    gate = asyncio.Event()
    async with fake_engine(capacity_tokens=4096) as engine, fronted(engine.url) as front:
        engine.then(says("a b", gate=gate, counts=usage(2000, 10)))
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        held = front.chatting(words(2000), "second")
        await until(lambda: front.held() == 1)
        planner = front.gateway.driver.planner
        works = planner.answer

        async def broken(command: ComputePlan) -> tuple[Answer, PlanReady]:
            planner.answer = works  # type: ignore[method-assign]
            raise RuntimeError("broken on purpose")

        planner.answer = broken  # type: ignore[method-assign]
        gate.set()
        await first
        front.end(front.session("first"))  # type: ignore[arg-type]
        assert (await held).status_code == 200
        (failed,) = front.events(PlanFailed)
        assert failed.cause == "RuntimeError('broken on purpose')"
        assert front.commands(DispatchTurn)[-1].reason is Reason.PLANNED
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
            "no plan, and no fallback either"
        ]


def test_what_came_of_plans_is_counted() -> None:
    """By what answered, and how much of it was stale."""
    metrics = GatewayMetrics(Scheduler(make_policy("tao")), PlannerFigures())
    replica = ReplicaId("a")
    placed = tuple((SessionId(name), replica) for name in ("x", "y", "z"))
    ready = PlanReady(0.0, PlanId(1), placed, "exact", "optimal", 0.1)
    metrics.observe(ready, [AdmitSession(SessionId("x"), replica, Reason.PLANNED, 10)])
    metrics.observe(PlanReady(1.0, PlanId(2), placed[:1], "bfd", "fallback", 1.0), [])
    metrics.observe(PlanReady(2.0, PlanId(3), (), "listing", "optimal", 0.0), [])
    metrics.observe(PlanFailed(3.0, PlanId(4), "a defect"), [])
    page = metrics.page().decode()
    for line in (
        'tao_plans_total{solver="exact",status="optimal"} 1.0',
        'tao_plans_total{solver="bfd",status="fallback"} 1.0',
        'tao_plans_total{solver="none",status="failed"} 1.0',
        "tao_plans_dropped_total 1.0",
        "tao_plan_sessions_dropped_total 3.0",
        'tao_planner_failures_total{cause="timeout"} 0.0',
    ):
        assert line in page.splitlines(), page


def test_what_the_planner_only_adds_to_is_a_counter() -> None:
    page = GatewayMetrics(Scheduler(make_policy("tao")), PlannerFigures()).page().decode()
    kinds = dict(re.findall(r"^# TYPE (tao_planner_\w+) (\w+)$", page, flags=re.MULTILINE))
    assert kinds == {
        f"tao_planner_{name}_total": "counter"
        for name in ("plans", "failures", "fallbacks", "restarts", "seconds")
    }
