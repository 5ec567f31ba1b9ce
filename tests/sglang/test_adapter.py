"""What TAO relies on in a real SGLang, read by its own adapter and by `tao check`."""

from typing import Any

import httpx
import pytest
from gateway_kit import until, words

from tao.engines import EngineStatus, read_slots, read_sources, read_status, slots_paths
from tao.inspection import EngineClient, Level, check_engine
from tests.sglang.sglang_replica import CAPACITY_TOKENS, REQUESTS_MAX, VERSION, SglangReplica

# The engine takes a minute and more to start, inside the first test's time.
pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]


async def status(engine: httpx.AsyncClient) -> EngineStatus:
    return read_status((await engine.get("/metrics")).content)


async def chat(engine: httpx.AsyncClient, text: str) -> dict[str, Any]:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 8,
        "ignore_eos": True,
    }
    answer = await engine.post("/v1/chat/completions", json=body, timeout=60.0)
    assert answer.status_code == httpx.codes.OK, answer.text
    usage: dict[str, Any] = answer.json()["usage"]
    return usage


async def test_the_metrics_page(engine: httpx.AsyncClient) -> None:
    """It counts what usage says, to the token, and is at rest when nothing runs; usage is as of the last step."""
    before = await status(engine)
    assert (before.engine, before.capacity_tokens) == ("sglang", CAPACITY_TOKENS)
    usages = [await chat(engine, f"metrics {words(200)}") for _ in range(2)]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[0] == 0
    assert cached[1] == usages[1]["prompt_tokens"] - 1

    async def counted() -> bool:
        after = await status(engine)
        counts = [
            (after.prefix_hit_tokens or 0) - (before.prefix_hit_tokens or 0),
            (after.prefix_query_tokens or 0) - (before.prefix_query_tokens or 0),
            (after.output_tokens or 0) - (before.output_tokens or 0),
        ]
        return counts == [sum(cached), sum(usage["prompt_tokens"] for usage in usages), 16]

    await until(counted)
    after = await status(engine)
    assert (after.running, after.waiting, after.problems) == (0, 0, ())
    assert after.kv_usage is not None
    assert 0.0 <= after.kv_usage <= 0.05


async def test_its_pages_of_itself(engine: httpx.AsyncClient) -> None:
    (document,) = [(await engine.get(path)).json() for path in slots_paths("sglang")[:1]]
    assert document["version"] == VERSION
    assert read_slots("sglang", document, 1) == REQUESTS_MAX
    (source,) = read_sources(document, "10.0.0.1")
    assert source.endpoint.startswith("tcp://127.0.0.1:")
    assert source.replay_endpoint is not None
    assert (source.topic, source.rank) == ("kv-events", 0)


async def test_tao_check_finds_all_that_it_is_started_to_tell(sglang_replica: SglangReplica) -> None:
    async with EngineClient(sglang_replica.url) as client:
        check = await check_engine(client, None, None)
    found = {finding.topic: (finding.level, finding.told) for finding in check.findings}
    assert check.complete, check.findings
    assert (check.engine, check.version, check.models) == ("sglang", VERSION, ["tiny"])
    assert f"{CAPACITY_TOKENS:,} KV tokens" in found["capacity"][1]
    assert f"{REQUESTS_MAX} requests run at once" in found["slots"][1]
    for topic in ("health", "cached tokens", "streams", "KV events"):
        assert found[topic][0] is Level.KNOWN, found[topic]
