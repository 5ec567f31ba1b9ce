"""The planner's process: warm, one plan at a time, replaced when it hangs or dies, gone when it is closed."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
import uvloop

from tao.planning import (
    Item,
    Knapsack,
    PlanCrashError,
    PlanFailedError,
    PlanTimeoutError,
    PlanWorker,
    PlanWorkerBusyError,
    PlanWorkerClosedError,
    Problem,
    Triple,
    solve,
)


def problem() -> Problem:
    knapsacks = (Knapsack("x", 100), Knapsack("y", 60))
    items = tuple(Item(f"i{n}", 30, {"x": Triple(n, 0, 30), "y": Triple(0, 1, 30)}) for n in range(6))
    return Problem(knapsacks, items)


async def test_answers_as_in_process() -> None:
    async with PlanWorker() as worker:
        answer = await worker.solve(problem(), "dp", 10.0)
        assert answer.assignment == solve(problem(), "dp").assignment
        assert worker.stats.plans == 1
        assert worker.stats.failures == 0


async def test_a_hung_process_is_replaced() -> None:
    async with PlanWorker() as worker:
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(PlanTimeoutError):
            await worker.solve(problem(), "dp", 0.2)
        answer = await worker.solve(problem(), "dp", 30.0)
        assert answer.status == "optimal"
        assert worker.pid != pid
        assert worker.stats.restarts == 1
        assert worker.stats.failures == 1


async def test_a_killed_process_is_replaced() -> None:
    async with PlanWorker() as worker:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(PlanCrashError):
            await worker.solve(problem(), "dp", 10.0)
        assert (await worker.solve(problem(), "dp", 30.0)).status == "optimal"


async def _die_unasked() -> str:
    async with PlanWorker() as worker:
        assert worker.pid is not None
        process = worker._process
        assert process is not None
        os.kill(worker.pid, signal.SIGKILL)
        await process.wait()
        with pytest.raises(PlanCrashError):
            await worker.solve(problem(), "dp", 10.0)
        return (await worker.solve(problem(), "dp", 30.0)).status


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_process_that_died_while_nobody_asked_is_replaced(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop raises at the write to such a process, asyncio's own loop later."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(_die_unasked()) == "optimal"


async def test_a_raising_solver_leaves_the_process_alone() -> None:
    async with PlanWorker() as worker:
        pid = worker.pid
        with pytest.raises(PlanFailedError, match="UnknownSolverError"):
            await worker.solve(problem(), "no-such-solver", 10.0)
        assert (await worker.solve(problem(), "dp", 10.0)).status == "optimal"
        assert worker.pid == pid


async def test_at_most_one_plan_is_outstanding() -> None:
    async with PlanWorker() as worker:
        first = asyncio.create_task(worker.solve(problem(), "dp", 10.0))
        await asyncio.sleep(0)
        assert worker.busy
        with pytest.raises(PlanWorkerBusyError):
            await worker.solve(problem(), "dp", 10.0)
        assert (await first).status == "optimal"


async def test_closed_workers_refuse_and_leave_no_process() -> None:
    worker = PlanWorker()
    with pytest.raises(PlanWorkerClosedError):
        await worker.solve(problem(), "dp", 1.0)
    await worker.start()
    pid = worker.pid
    assert pid is not None
    await worker.close()
    with pytest.raises(PlanWorkerClosedError):
        await worker.solve(problem(), "dp", 1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
