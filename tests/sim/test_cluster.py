"""Runs over a Ray cluster of several nodes on this machine give what they give here. Skipped where Ray is missing."""

import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from sim_kit import PROFILE, session, tool, turn

from tao.sim.cluster import ClusterError, run_all_on_ray
from tao.sim.run import RunFailedError, RunSpec
from tao.sim.sweep import run_all
from tao.sim.workload import ClosedLoop

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
TRACES = {"t": [session(f"s{n}", turn(500 + n, 40, tool(1.0)), turn(900, 20)) for n in range(12)]}
SPECS = [
    RunSpec(policy, PROFILE, 2, ClosedLoop(n), ("t",)) for policy in ("tao", "round-robin") for n in (2, 6)
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    cluster_utils = importlib.import_module("ray.cluster_utils")
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        nodes.add_node(**node)
        yield str(nodes.address)
    finally:
        nodes.shutdown()


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_same_results_in_the_same_order(cluster: str) -> None:
    seen: list[list[int]] = []
    found = run_all_on_ray(SPECS, TRACES, cluster, lambda turns: seen.append(list(turns)))
    here = run_all(SPECS, TRACES, processes=1)
    assert [r.to_json_dict() for r in found] == [r.to_json_dict() for r in here]
    assert seen[-1] == [24] * len(SPECS)


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_that_fails_says_which(cluster: str) -> None:
    wrong = RunSpec("no-such-policy", PROFILE, 2, ClosedLoop(2), ("t",))
    with pytest.raises((ValueError, RunFailedError), match="no-such-policy"):
        run_all_on_ray([wrong], TRACES, cluster)


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_without_ray_it_says_what_to_install() -> None:
    with pytest.raises(ClusterError, match="pip install"):
        run_all_on_ray(SPECS, TRACES, "auto")
