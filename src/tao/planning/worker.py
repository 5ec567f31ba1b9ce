"""A planner in a process of its own, for an event loop that must never stall.

`PlanWorker` starts `tao.planning.child`, sends it one problem at a time and waits with a deadline. A process that
hangs, dies or sends nonsense is killed and replaced; the caller gets a typed exception and goes on without a plan.
Must not know what a plan is for, nor when one is wanted.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType
from typing import Self

import msgspec

from tao.planning.answer import Answer
from tao.planning.child import READY
from tao.planning.problem import Problem
from tao.planning.wire import (
    FRAME_BYTES_MAX,
    FRAME_HEADER,
    Request,
    decode_reply,
    encode_problem,
    encode_request,
    frame,
)

COMMAND = (sys.executable, "-P", "-c", "from tao.planning.child import main; main()")
START_SECONDS_MAX = 60.0
SEARCH_SHARE = 0.7
"""Part of the deadline that a search may use: the rest is for the trip and for reading the answer back."""


class PlanWorkerError(RuntimeError):
    """No answer from the planner's process."""


class PlanTimeoutError(PlanWorkerError):
    """No answer within the deadline; the process is replaced, unless it was still starting."""


class PlanCrashError(PlanWorkerError):
    """The process ended, could not be started, or sent something that is no answer; it is replaced."""


class PlanFailedError(PlanWorkerError):
    """The solver raised; the message is its traceback, and the process goes on."""


class PlanWorkerBusyError(PlanWorkerError):
    """A plan is outstanding: at most one is, so that plans never queue."""


class PlanWorkerClosedError(PlanWorkerError):
    """The worker is not started, or closed."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Counts since the start. `seconds` is the time from each request to its answer or failure, failures included."""

    plans: int = 0
    failures: int = 0
    restarts: int = 0
    seconds: float = 0.0


class PlanWorker:
    """One planner process; `async with PlanWorker() as worker: answer = await worker.solve(...)`.

    All methods must be called from one event loop. `command` starts a process that speaks the protocol of
    `tao.planning.child`.
    """

    def __init__(
        self, command: Sequence[str] = COMMAND, start_seconds_max: float = START_SECONDS_MAX
    ) -> None:
        self._command = tuple(command)
        self._start_seconds_max = start_seconds_max
        self._process: asyncio.subprocess.Process | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._open = False
        self._busy = False
        self._stats = WorkerStats()

    @property
    def stats(self) -> WorkerStats:
        return self._stats

    @property
    def busy(self) -> bool:
        """Whether a plan is outstanding."""
        return self._busy

    @property
    def pid(self) -> int | None:
        """The process that would answer now; None while there is none."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process and wait until it is warm. Raises `PlanCrashError` where that fails."""
        if self._open:
            raise PlanWorkerBusyError("the planner is started already")
        self._open = True
        try:
            await self._spawn()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill the process and wait for its end; an outstanding `solve` raises `PlanCrashError`."""
        self._open = False
        if self._restarting is not None:
            self._restarting.cancel()
            with contextlib.suppress(asyncio.CancelledError, PlanWorkerError):
                await self._restarting
            self._restarting = None
        await self._kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def solve(self, problem: Problem, solver: str, deadline_seconds: float) -> Answer:
        """Plan within `deadline_seconds` (wall clock), or raise a `PlanWorkerError`.

        Where the process is still being replaced, this waits for it as part of the deadline. Cancelling is safe: the
        process is replaced, so a late answer is never taken for the next one.
        """
        if not self._open:
            raise PlanWorkerClosedError("the planner is not started, or closed")
        if self._busy:
            raise PlanWorkerBusyError("a plan is outstanding")
        self._busy = True
        started = perf_counter()
        failed = True
        try:
            answer = await self._solve(problem, solver, deadline_seconds)
            failed = False
            return answer
        finally:
            self._busy = False
            self._count(perf_counter() - started, failed=failed)

    async def _solve(self, problem: Problem, solver: str, deadline_seconds: float) -> Answer:
        until = asyncio.get_running_loop().time() + deadline_seconds
        await self._ready(until)
        search = deadline_seconds * SEARCH_SHARE
        request = frame(encode_request(Request(encode_problem(problem), solver, search)))
        try:
            async with asyncio.timeout_at(until):
                reply = decode_reply(await self._exchange(request))
        except TimeoutError:
            self._replace()
            raise PlanTimeoutError(f"no plan within {deadline_seconds} s") from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self._replace()
            raise PlanCrashError(f"the planner's process failed: {error!r}") from error
        except BaseException:
            self._replace()
            raise
        if reply.answer is None:
            raise PlanFailedError(reply.error or "no reason given")
        return reply.answer

    async def _ready(self, until: float) -> None:
        """Wait for a process that is being replaced; start another where the last start failed."""
        if self._restarting is None and self._process is None:
            self._replace()
        if self._restarting is None:
            return
        try:
            async with asyncio.timeout_at(until):
                await asyncio.shield(self._restarting)
        except TimeoutError:
            raise PlanTimeoutError("the planner's process is still starting") from None
        except PlanCrashError:
            self._restarting = None
            raise
        self._restarting = None

    async def _exchange(self, request: bytes) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(request)
        except RuntimeError as error:
            # What uvloop raises where the process died while nobody asked it; asyncio's own loop says it at the drain.
            raise BrokenPipeError(str(error)) from error
        await process.stdin.drain()
        return await _read_frame(process)

    async def _spawn(self) -> None:
        """Start a process and wait for its first message."""
        pipe = asyncio.subprocess.PIPE
        try:
            async with asyncio.timeout(self._start_seconds_max):
                # A signal to all of a terminal's or a supervisor's group is for the parent, which ends its child.
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=pipe, stdout=pipe, start_new_session=True
                )
                self._process = process
                hello = await _read_frame(process)
        except TimeoutError:
            await self._kill()
            raise PlanCrashError(f"the planner did not start within {self._start_seconds_max} s") from None
        except (OSError, EOFError) as error:
            await self._kill()
            raise PlanCrashError(f"the planner did not start: {error!r}") from error
        except BaseException:
            await self._kill()
            raise
        if hello != READY:
            await self._kill()
            raise PlanCrashError(f"the planner's first message is not {READY!r}: {hello[:80]!r}")

    def _replace(self) -> None:
        """Kill the process and start another, in the background."""
        if not self._open:
            return
        self._stats = replace(self._stats, restarts=self._stats.restarts + 1)
        self._restarting = asyncio.create_task(self._respawn(), name="planner restart")
        # A failed restart is raised by the next `solve`; until then nobody asks, and that is no error.
        self._restarting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _respawn(self) -> None:
        await self._kill()
        await self._spawn()

    async def _kill(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        self._process = None

    def _count(self, seconds: float, *, failed: bool) -> None:
        before = self._stats
        self._stats = replace(
            before,
            plans=before.plans + 1,
            failures=before.failures + int(failed),
            seconds=before.seconds + seconds,
        )


async def _read_frame(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    (size,) = FRAME_HEADER.unpack(await process.stdout.readexactly(FRAME_HEADER.size))
    if size > FRAME_BYTES_MAX:
        raise EOFError(f"a message of {size} bytes is above the limit of {FRAME_BYTES_MAX}")
    return await process.stdout.readexactly(size)
