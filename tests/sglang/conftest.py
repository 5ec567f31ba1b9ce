"""Fixtures of the SGLang tests: one real replica for the whole run, since its start takes most of the time."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from gateway_kit import plain_http, until

from tests.sglang.sglang_replica import SglangReplica, start_replica


@pytest.fixture(scope="session")
def sglang_replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangReplica]:
    """A running SGLang with a tiny random model and a KV cache of 16,384 tokens in pages of one."""
    with start_replica(tmp_path_factory.mktemp("sglang")) as replica:
        yield replica


@pytest.fixture
async def engine(sglang_replica: SglangReplica) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the replica whose prefix cache is empty."""
    async with plain_http(sglang_replica.url) as client:

        async def flushed() -> bool:
            """It refuses while a request runs, the one of a health page too."""
            return (await client.post("/flush_cache")).status_code == httpx.codes.OK

        await until(flushed)
        yield client
