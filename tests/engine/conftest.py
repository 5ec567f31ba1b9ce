"""Fixtures of the engine tests: two real replicas for the whole run, started together, since that takes a minute."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from tests.engine.vllm_replica import ReplicaOptions, VllmReplica, start_replica

ROOMY = ReplicaOptions(kv_events=True)
SMALL = ReplicaOptions(blocks=256, context_tokens_max=4096, kv_events=True)


@pytest.fixture(scope="session")
def vllm_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmReplica, VllmReplica]]:
    """Two running vLLM with tiny random models: KV caches of 32,768 and of 8,192 tokens, which they publish."""
    starts = [start_replica(tmp_path_factory.mktemp("vllm"), options) for options in (ROOMY, SMALL)]
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(stack.enter_context, starts)
        yield first, second


@pytest.fixture(scope="session")
def vllm_replica(vllm_pair: tuple[VllmReplica, VllmReplica]) -> VllmReplica:
    """The one with the larger cache; nothing ends it before the run does."""
    return vllm_pair[0]


@pytest.fixture
def engine(vllm_replica: VllmReplica) -> Iterator[httpx.Client]:
    """A client of the replica whose prefix cache is empty."""
    with httpx.Client(base_url=vllm_replica.url, timeout=60.0) as client:
        client.post("/reset_prefix_cache").raise_for_status()
        yield client
