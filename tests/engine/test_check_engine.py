"""`tao check` in front of a real vLLM: everything that it is started to tell is found."""

import pytest

from tao.inspection import EngineClient, Level, check_engine
from tests.engine.vllm_replica import VllmReplica

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


async def test_a_real_vllm_tells_all_that_matters(vllm_replica: VllmReplica) -> None:
    async with EngineClient(vllm_replica.url) as client:
        check = await check_engine(client, None, None)
    found = {finding.topic: (finding.level, finding.told) for finding in check.findings}
    assert check.complete
    assert (check.engine, check.models) == ("vllm", [vllm_replica.model])
    assert check.version
    assert f"{vllm_replica.capacity_tokens:,} KV tokens" in found["capacity"][1]
    for topic in ("health", "cached tokens", "streams", "KV events"):
        assert found[topic][0] is Level.KNOWN, found[topic]
