"""Many runs over the cores of one machine: each run is a process's job, the longest begin first, results come back in
the order of the specs.

Nothing of a result depends on which process ran it, or on how many there are. It must not know what the runs are for.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from ctypes import c_uint64
from typing import Any

from tao.sim.processes import process_pool
from tao.sim.run import RunResult, RunSpec, run
from tao.traces import TraceSession

Traces = Mapping[str, Sequence[TraceSession]]
OnTurns = Callable[[Sequence[int]], None]
"""Told how many turns of each run have ended so far."""

POLL_SECONDS = 0.2
TURNS_A_REPORT = 200


def run_all(
    specs: Sequence[RunSpec], traces: Traces, processes: int | None = None, on_turns: OnTurns | None = None
) -> list[RunResult]:
    """Run every spec; `processes` defaults to the cores this process may use. The first failure ends it all.

    Raises what `run` raises, RunFailedError where a run breaks off by a defect of the core or a policy, and
    ChildProcessError where a process was killed.
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

        results.append(run(spec, traces, ended))
        if on_turns is not None:
            on_turns(turns)
    return results


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
    chosen = min(spec.order.count_max or played, played) * spec.order.group_size
    return turns * chosen / max(len(sessions), 1)


def _run_spread(
    specs: Sequence[RunSpec], traces: Traces, processes: int, on_turns: OnTurns | None
) -> list[RunResult]:
    turns: Any = multiprocessing.get_context("spawn").Array(c_uint64, len(specs), lock=False)
    with process_pool(processes, _prepare, dict(traces), turns) as pool:
        futures: dict[int, Future[RunResult]] = {}
        for index in longest_first(specs, traces):
            futures[index] = pool.submit(_run_in_child, index, specs[index])
        pending: set[Future[RunResult]] = set(futures.values())
        while pending:
            done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            for future in done:
                future.result()
            if on_turns is not None:
                on_turns(list(turns))
        return [futures[index].result() for index in range(len(specs))]


class _Child:
    """What a child process was given at its start."""

    traces: Traces
    turns: Any


def _prepare(traces: Traces, turns: Any) -> None:
    _Child.traces, _Child.turns = traces, turns


def _run_in_child(index: int, spec: RunSpec) -> RunResult:
    def ended(count: int) -> None:
        _Child.turns[index] = count

    return run(spec, _Child.traces, ended)
