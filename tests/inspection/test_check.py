"""`tao check`: each thing that an engine may not tell is named with the flag that turns it on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import zmq
from aiohttp import web
from click.testing import CliRunner, Result
from fake_engine import Asked, FakeEngine, fake_engine, says, status, usage
from gateway_kit import emulated

from tao.cli.check import command
from tao.inspection import Check, EngineClient, EngineError, Level, check_engine, kv_listening

RANKS = "".join(
    f'vllm:cache_config_info{{engine="{rank}",block_size="16",num_gpu_blocks="100"}} 1.0\n'
    for rank in range(3)
)
DEEP = b'{"usage":' + b"[" * 60_000 + b"]" * 60_000 + b"}"
SGLANG = "sglang:max_total_num_tokens 8e3\nsglang:num_running_reqs 0\n"


async def checked(engine: FakeEngine, **more: Any) -> Check:
    async with EngineClient(engine.url) as client:
        return await check_engine(client, more.get("model"), more.get("kv_endpoint"))


def found(check: Check, topic: str) -> tuple[Level, str, str]:
    findings = [finding for finding in check.findings if finding.topic == topic]
    assert findings, f"nothing about {topic}: {[finding.topic for finding in check.findings]}"
    return findings[-1].level, findings[-1].told, findings[-1].remedy


async def run(*arguments: str) -> Result:
    """The command, on a thread of its own: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, command, list(arguments))


async def test_an_engine_that_tells_everything() -> None:
    async with emulated(kv_events="tcp://127.0.0.1:*") as replica:
        result = await run(replica.url, "--json")
        assert result.exit_code == 0, result.output
        (told,) = json.loads(result.output)
        assert told["complete"]
        assert told["engine"] == "vllm"
        levels = {finding["topic"]: finding["level"] for finding in told["findings"]}
        assert levels.pop("slots") == "note"
        assert levels == dict.fromkeys(
            ["health", "engine", "models", "metrics", "capacity", "cached tokens", "streams", "KV events"],
            "known",
        )


async def test_the_table_is_for_people() -> None:
    async with emulated() as replica:
        result = await run(replica.url)
        assert result.exit_code == 0
        assert "nothing is missing that matters" in result.output
        assert "--kv-events-config" in result.output.replace("\n", "")


async def test_no_metrics_page() -> None:
    async with fake_engine(has_pages=False, default=says("x", counts=usage(100, 1, 90))) as engine:
        check = await checked(engine)
        assert found(check, "health")[0] is Level.NOTE
        level, told, remedy = found(check, "metrics")
        assert (level, "--enable-metrics" in remedy) == (Level.MISSING, True)
        assert "answers 404" in told
        assert "--capacity-tokens" in found(check, "capacity")[2]
        assert not check.complete


async def test_slots_that_are_told_and_that_are_not() -> None:
    async with fake_engine(default=says("x", counts=usage(100, 1, 90))) as engine:
        level, _, remedy = found(await checked(engine), "slots")
        assert (level, "VLLM_SERVER_DEV_MODE=1" in remedy) == (Level.NOTE, True)
        engine.server_info = {"vllm_config": {"scheduler_config": {"max_num_seqs": 48}}}
        level, told, remedy = found(await checked(engine), "slots")
        assert (level, told) == (
            Level.KNOWN,
            "48 requests run at once (/server_info); beyond that they wait in the engine",
        )
        assert "--replica-slots engine" in remedy
        engine.page = SGLANG
        assert found(await checked(engine), "slots")[0] is Level.NOTE
        engine.server_info = {"internal_states": [{"effective_max_running_requests_per_dp": 52}] * 2}
        assert found(await checked(engine), "slots")[1].startswith("104 requests")


@pytest.mark.parametrize(
    ("page", "topic", "says_what"),
    [
        (RANKS, "ranks", "3 data-parallel ranks (1,600, 1,600, 1,600 tokens)"),
        (RANKS, "capacity", "4,800 KV tokens"),
        (SGLANG, "capacity", "8,000 KV tokens (sglang:max_total_num_tokens)"),
        ("nothing that TAO knows", "metrics", "neither vllm: nor sglang:"),
        (SGLANG, "engine", "sglang"),
    ],
)
async def test_pages_of_many_kinds(page: str, topic: str, says_what: str) -> None:
    async with fake_engine(page=page, default=says("x", counts=usage(100, 1, 90))) as engine:
        assert says_what in found(await checked(engine), topic)[1]


async def test_cached_tokens_that_usage_hides_show_in_the_engines_counter() -> None:
    async with fake_engine() as engine:
        hits = 0

        async def serves_from_its_cache(asked: Asked) -> web.StreamResponse:
            nonlocal hits
            hits += 80
            page = engine.metrics()
            engine.page = page.replace(
                'prefix_cache_hits_total{engine="0"} 0.0', f"prefix_cache_hits_total {hits}"
            )
            return await says("x", counts=usage(100, 1))(asked)

        engine.default = serves_from_its_cache
        level, told, remedy = found(await checked(engine), "cached tokens")
        assert (level, "usage does not say so" in told) == (Level.MISSING, True)
        assert "--enable-prompt-tokens-details" in remedy
        assert "--enable-cache-report" in remedy


async def test_no_cache_and_no_usage() -> None:
    async with fake_engine(default=says("x", counts=usage(100, 1))) as engine:
        level, told, remedy = found(await checked(engine), "cached tokens")
        assert (level, "not served from a cache" in told) == (Level.MISSING, True)
        assert "--enable-prefix-caching" in remedy
        engine.default = says("x", counts={})
        check = await checked(engine)
        assert "no token counts" in found(check, "usage")[1]
        assert "carry no usage" in found(check, "streams")[1]


async def test_an_engine_that_refuses_completions() -> None:
    async with fake_engine(default=status(501)) as engine:
        check = await checked(engine)
        assert "answered with 501" in found(check, "usage")[1]
        assert "a stream failed" in found(check, "streams")[1]


async def test_models() -> None:
    async with fake_engine(models=(), default=says("x", counts=usage(100, 1, 90))) as engine:
        with pytest.raises(EngineError, match="--model NAME"):
            await checked(engine)
        check = await checked(engine, model="m")
        assert found(check, "models")[0] is Level.NOTE


async def test_kv_events_that_nobody_sends() -> None:
    async with fake_engine(default=says("x", counts=usage(100, 1, 90))) as engine:
        assert "off, or not told" in found(await checked(engine), "KV events")[1]
        level, told, _ = found(await checked(engine, kv_endpoint="tcp://127.0.0.1:1"), "KV events")
        assert (level, "nothing is heard from tcp://127.0.0.1:1" in told) == (Level.NOTE, True)
        with pytest.raises(EngineError, match="no ZMQ endpoint"):
            await checked(engine, kv_endpoint="http://x")


@asynccontextmanager
async def publishing(ranks: int) -> AsyncIterator[list[tuple[str, Callable[[], object]]]]:
    """Publishers of KV events: the endpoint of each, and what makes it say something."""
    context = zmq.Context()
    sockets = [context.socket(zmq.PUB) for _ in range(ranks)]
    try:
        for socket in sockets:
            socket.bind("tcp://127.0.0.1:*")
        yield [
            (socket.getsockopt_string(zmq.LAST_ENDPOINT), partial(socket.send_multipart, [b"", b"0", b""]))
            for socket in sockets
        ]
    finally:
        context.destroy(0)


async def test_ranks_are_listened_to_together_since_a_request_is_served_by_one_of_them() -> None:
    async with publishing(3) as ranks, fake_engine() as engine:
        engine.kv_sources = [{"endpoint": endpoint} for endpoint, _ in ranks]
        turns = cycle(tell for _, tell in ranks)
        prompts: list[str] = []

        async def by_one_rank_in_turn(asked: Asked) -> web.StreamResponse:
            if asked.body["prompt"] not in prompts:  # of what is cached an engine tells nothing
                next(turns)()
            prompts.append(asked.body["prompt"])
            return await says("x", counts=usage(100, 1, 90))(asked)

        engine.default = by_one_rank_in_turn
        level, told, remedy = found(await checked(engine), "KV events")
        assert (level, remedy) == (Level.KNOWN, ""), told
        assert told == f"heard from {', '.join(endpoint for endpoint, _ in ranks)}"


async def test_a_rank_that_the_balancer_leaves_out_is_no_proof_of_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_listening, "HEARD_SECONDS", 0.2)
    async with publishing(2) as ranks, fake_engine() as engine:
        (one, tell), (other, _) = ranks
        engine.kv_sources = [{"endpoint": one}, {"endpoint": other}]

        async def always_the_same(asked: Asked) -> web.StreamResponse:
            tell()
            return await says("x", counts=usage(100, 1, 90))(asked)

        engine.default = always_the_same
        level, told, _ = found(await checked(engine), "KV events")
        assert level is Level.NOTE
        assert told.startswith(f"heard from {one}; not from {other} while 4 requests were served")


async def test_json_that_is_nested_too_deeply_is_named() -> None:
    async with fake_engine() as engine:

        async def nests(asked: Asked) -> web.StreamResponse:
            return web.Response(body=DEEP, content_type="application/json")

        async def streams_nested(asked: Asked) -> web.StreamResponse:
            if not asked.stream:
                return await says("x", counts=usage(100, 1, 90))(asked)
            return web.Response(body=b"data: " + DEEP + b"\n\n", content_type="text/event-stream")

        engine.default = nests
        result = await run(engine.url)
        assert result.exit_code == 2, result.output
        assert "/version: its JSON is nested too deeply" in " ".join(result.output.split())
        engine.default = streams_nested
        assert "nested too deeply" in found(await checked(engine), "streams")[1]


async def test_exit_codes_and_bad_input() -> None:
    async with fake_engine(default=says("x", counts=usage(100, 1))) as engine:
        assert (await run(engine.url)).exit_code == 1
        both = await run(engine.url, "http://127.0.0.1:1", "--json")
        assert both.exit_code == 2
        assert [told["reachable"] for told in json.loads(both.output)] == [True, False]
        engine.healthy = False
        assert "/health answers 503" in (await run(engine.url)).output
    for url in ("127.0.0.1:1", "http://127.0.0.1:1/v1"):
        refused = await run(url)
        assert refused.exit_code == 2
        assert "write it like" in refused.output
