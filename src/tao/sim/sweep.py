"""Many runs over the cores of one machine: each run is a process's job, the longest begin first, results come back in
the order of the specs.

Nothing of a result depends on which process ran it, or on how many there are. It must not know what the runs are for.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from ctypes import c_uint64
from threading import Thread
from typing import Any

from tao.sim.run import RunResult, RunSpec, run
from tao.traces import TraceSession

Traces = Mapping[str, Sequence[TraceSession]]
OnTurns = Callable[[Sequence[int]], None]
"""Told how many turns of each run have ended so far."""

POLL_SECONDS = 0.2
TURNS_A_REPORT = 200


class RunFailedError(RuntimeError):
    """A run broke off by a defect; `spec` says which. The cause is in the message."""

    def __init__(self, spec: RunSpec, cause: str) -> None:
        super().__init__(f"{spec.policy}, {spec.arrivals}, seed {spec.seed}: {cause}")
        self.spec = spec
        self.cause = cause

    def __reduce__(self) -> tuple[type["RunFailedError"], tuple[RunSpec, str]]:
        return RunFailedError, (self.spec, self.cause)


def run_all(
    specs: Sequence[RunSpec], traces: Traces, processes: int | None = None, on_turns: OnTurns | None = None
) -> list[RunResult]:
    """Run every spec; `processes` defaults to the cores this process may use. The first failure ends it all.

    Raises what `run` raises, and RunFailedError where a run breaks off by a defect of the core or a policy.
    """
    if processes is None:
        processes = available_cores()
    if processes <= 1 or len(specs) <= 1:
        return _run_here(specs, traces, on_turns)
    return _run_spread(specs, traces, min(processes, len(specs)), on_turns)


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(specs: Sequence[RunSpec], traces: Traces, on_turns: OnTurns | None) -> list[RunResult]:
    turns = [0] * len(specs)
    results: list[RunResult] = []
    for index, spec in enumerate(specs):

        def ended(count: int, index: int = index) -> None:
            turns[index] = count
            if on_turns is not None and count % TURNS_A_REPORT == 0:
                on_turns(turns)

        results.append(run_one(spec, traces, ended))
        if on_turns is not None:
            on_turns(turns)
    return results


def run_one(spec: RunSpec, traces: Traces, ended: Callable[[int], None] | None = None) -> RunResult:
    """One run, with defects told as RunFailedError."""
    try:
        return run(spec, traces, ended)
    except (ValueError, OSError):
        raise
    except Exception as error:
        raise RunFailedError(spec, f"{type(error).__name__}: {error}") from error


def longest_first(specs: Sequence[RunSpec], traces: Traces) -> list[int]:
    """The order in which to start runs so that no core is left with a long one at the end, as indices.

    Of runs with as many turns, those with more workers come first: more wait, and every decision is about all who do.
    """
    turns = [expected_turns(spec, traces) for spec in specs]
    return sorted(
        range(len(specs)), key=lambda index: (-turns[index], -(specs[index].concurrency or 0), index)
    )


def expected_turns(spec: RunSpec, traces: Traces) -> float:
    """How many turns a run will have, where its sessions are as long as the traces' on average."""
    sessions = [session for name in spec.traces for session in traces[name]]
    turns = sum(len(session.turns) for session in sessions)
    played = spec.order.fitted or len(sessions) * spec.order.repeats
    return turns * min(spec.order.count_max or played, played) / max(len(sessions), 1)


def _run_spread(
    specs: Sequence[RunSpec], traces: Traces, processes: int, on_turns: OnTurns | None
) -> list[RunResult]:
    # Fresh interpreters: a fork would copy the state of whatever threads the caller has.
    context = multiprocessing.get_context("spawn")
    turns: Any = context.Array(c_uint64, len(specs), lock=False)
    with ProcessPoolExecutor(processes, context, _prepare, (dict(traces), turns)) as pool:
        futures: dict[int, Future[RunResult]] = {}
        for index in longest_first(specs, traces):
            futures[index] = pool.submit(_run_in_child, index, specs[index])
        try:
            pending: set[Future[RunResult]] = set(futures.values())
            while pending:
                done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
                if on_turns is not None:
                    on_turns(list(turns))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [futures[index].result() for index in range(len(specs))]


class _Child:
    """What a child process was given at its start."""

    traces: Traces
    turns: Any


def _prepare(traces: Traces, turns: Any) -> None:
    _Child.traces, _Child.turns = traces, turns
    Thread(target=_end_with_parent, name="end with parent", daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells its children nothing: they would finish their runs, and then wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_child(index: int, spec: RunSpec) -> RunResult:
    def ended(count: int) -> None:
        _Child.turns[index] = count

    return run_one(spec, _Child.traces, ended)
