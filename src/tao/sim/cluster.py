"""Many runs over a Ray cluster: each run is a task, results come back in the order of the specs.

For sweeps that outgrow one machine. Ray is an optional extra and tao has to be installed on every node; results are the
same as on one machine. It must not know what the runs are for.
"""

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from tao.sim.run import RunResult, RunSpec, run
from tao.sim.sweep import OnTurns, Traces

POLL_SECONDS = 0.5
RETRIES_MAX = 2
"""A node may go away; a run that did not end is begun anew elsewhere."""


class ClusterError(ValueError):
    """The cluster cannot be used; the text says why and what to do."""


def run_all_on_ray(
    specs: Sequence[RunSpec], traces: Traces, address: str, on_turns: OnTurns | None = None
) -> list[RunResult]:
    """Run every spec on the cluster at `address` (`host:port`, or `auto` for the one of this machine).

    Raises ClusterError where Ray is missing or the cluster does not answer, else what `tao.sim.sweep.run_all` raises.
    Progress is told by whole runs.
    """
    ray = _connected(address)
    try:
        shared = ray.put(dict(traces))
        task = ray.remote(max_retries=RETRIES_MAX)(run)
        references = [task.remote(spec, shared) for spec in specs]
        _watch(ray, references, specs, traces, on_turns)
        return [_result(ray, reference) for reference in references]
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    if find_spec("ray") is None:
        raise ClusterError("--ray needs Ray: pip install ray")
    ray = importlib.import_module("ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterError(f"no Ray cluster answers at {address}: {error}") from error
    return ray


def _watch(
    ray: Any, references: Sequence[Any], specs: Sequence[RunSpec], traces: Traces, on_turns: OnTurns | None
) -> None:
    turns_of = {name: sum(len(session.turns) for session in sessions) for name, sessions in traces.items()}
    turns = [0] * len(specs)
    index = {reference: number for number, reference in enumerate(references)}
    pending = list(references)
    while pending:
        done, pending = ray.wait(pending, timeout=POLL_SECONDS)
        for reference in done:
            _result(ray, reference)
            number = index[reference]
            turns[number] = sum(turns_of[name] for name in specs[number].traces)
        if on_turns is not None:
            on_turns(turns)


def _result(ray: Any, reference: Any) -> RunResult:
    try:
        result = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # what the run itself raised
    assert isinstance(result, RunResult)
    return result
