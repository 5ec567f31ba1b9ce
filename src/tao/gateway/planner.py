"""Computing plans off the event loop, and what to do when that fails.

A problem so small that the trip to another process costs more than the answer is solved here. When the process hangs,
dies or raises, best-fit-decreasing answers in its place, so that sessions never wait for a planner; every such case is
counted and logged. It must not know what happens to a plan.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

import structlog

from tao.core.commands import ComputePlan
from tao.core.events import PlanReady
from tao.planning import (
    Answer,
    PlanCrashError,
    PlanFailedError,
    PlanTimeoutError,
    PlanWorkerBusyError,
    PlanWorkerClosedError,
    PlanWorkerError,
    Problem,
    WorkerStats,
    is_small,
    solve,
)
from tao.policies import assignments_of, problem_of

FALLBACK_SOLVER = "bfd"
CAUSES: Mapping[type[PlanWorkerError], str] = {
    PlanTimeoutError: "timeout",
    PlanCrashError: "crash",
    PlanFailedError: "raised",
    PlanWorkerBusyError: "busy",
    PlanWorkerClosedError: "closed",
}
"""Why the planner's process gave no answer, as `/metrics` shows it."""


@dataclass(slots=True)
class PlannerFigures:
    """Counts since the start. `seconds` is all planner time: small ones, failures and fallbacks included.

    `failures_by`: failures of the planner's process by cause, each of which the fallback answered for.
    """

    plans: int = 0
    failures_by: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(CAUSES.values(), 0)))
    fallbacks: int = 0
    restarts: int = 0
    seconds: float = 0.0

    @property
    def failures(self) -> int:
        """Of all causes."""
        return self.failures_by.total()


class PlanSolver(Protocol):
    """Solves one problem at a time off the event loop: `tao.planning.PlanWorker`, for one."""

    @property
    def stats(self) -> WorkerStats: ...

    async def start(self) -> None:
        """Raises `PlanWorkerError` where that fails."""

    async def close(self) -> None: ...

    async def solve(self, problem: Problem, solver: str, deadline_seconds: float) -> Answer:
        """Raises `PlanWorkerError`."""


class Planner:
    """Answers `ComputePlan`. `deadline_seconds`: wall clock, for the process."""

    def __init__(self, worker: PlanSolver, deadline_seconds: float) -> None:
        self._worker = worker
        self._deadline_seconds = deadline_seconds
        self._log = structlog.get_logger("tao.planner")
        self.figures = PlannerFigures()

    async def start(self) -> None:
        """Start the planner's process; without one the fallback would answer for ever, so failure is an error."""
        await self._worker.start()

    async def close(self) -> None:
        """End the planner's process."""
        await self._worker.close()

    async def answer(self, command: ComputePlan) -> tuple[Answer, PlanReady]:
        """The plan, or the fallback's; never raises but for cancellation."""
        started = perf_counter()
        problem = problem_of(command.request)
        answer = await self._solve(problem, command.request.solver)
        elapsed_seconds = perf_counter() - started
        self.figures.plans += 1
        self.figures.seconds += elapsed_seconds
        self.figures.fallbacks += answer.status == "fallback"
        self.figures.restarts = self._worker.stats.restarts
        # The time of the event is not known here: whoever feeds it to the core sets it.
        ready = PlanReady(
            0.0,
            command.plan,
            assignments_of(command.request, answer.assignment),
            answer.solver,
            answer.status,
            elapsed_seconds,
        )
        return answer, ready

    async def _solve(self, problem: Problem, solver: str) -> Answer:
        if is_small(problem):
            return solve(problem, solver)
        try:
            return await self._worker.solve(problem, solver, self._deadline_seconds)
        except PlanWorkerError as error:
            self.figures.failures_by[CAUSES.get(type(error), "other")] += 1
            self._log.warning(
                "planner failed, using the fallback", error=str(error), kind=type(error).__name__
            )
        answer = await asyncio.to_thread(solve, problem, FALLBACK_SOLVER)
        return replace(answer, status="fallback")
