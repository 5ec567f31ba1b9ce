"""Fixtures of the engine tests: one real replica for the whole run, since it takes half a minute to start."""

from collections.abc import Iterator

import httpx
import pytest

from tests.engine.vllm_replica import VllmReplica, start_replica


@pytest.fixture(scope="session")
def vllm_replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmReplica]:
    """A running vLLM with a tiny random model and a KV cache of 32,768 tokens."""
    with start_replica(tmp_path_factory.mktemp("vllm")) as replica:
        yield replica


@pytest.fixture
def engine(vllm_replica: VllmReplica) -> Iterator[httpx.Client]:
    """A client of the replica whose prefix cache is empty."""
    with httpx.Client(base_url=vllm_replica.url, timeout=60.0) as client:
        client.post("/reset_prefix_cache").raise_for_status()
        yield client
