"""Emptying caches through the gateway: credit is void at once, and only where the engine has really done it."""

import asyncio
from typing import Any

import pytest
from fake_engine import Behaviour, cuts, drops, fake_engine, says, silent, status
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.events import CacheFlushed, ReplicaLost
from tao.gateway.config import Health

TOKEN = {"authorization": "Bearer secret"}


async def flush(front: Front, path: str = "/v1/tao/flush", **more: Any) -> tuple[int, dict[str, Any]]:
    answer = await front.http.post(path, **{"headers": TOKEN, **more})
    return answer.status_code, answer.json()


def evidence(front: Front, session: str) -> int:
    known = front.session(session)
    return 0 if known is None else sum(seen.tokens for seen in known.evidence.values())


@pytest.mark.parametrize("path", ["/v1/tao/flush", "/reset_prefix_cache", "/flush_cache"])
async def test_a_flush_through_the_gateway_zeroes_credit_at_once(path: str) -> None:
    async with emulated() as emulator, fronted(emulator.url, admin_token="secret") as front:
        await front.chat(words(1_000), "s")
        assert evidence(front, "s") > 900
        assert await flush(front, path) == (
            200,
            {"success": True, "replicas": [{"replica": emulator.url[7:], "flushed": True}]},
        )
        assert evidence(front, "s") == 0
        again = await front.chat(words(1_000), "s")
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_one_replica_may_be_named() -> None:
    async with (
        emulated() as one,
        emulated() as two,
        fronted(one.url, two.url, admin_token="secret") as front,
    ):
        assert (await flush(front, json={"replica": two.url}))[0] == 200
        assert (await flush(front, json={"replica": one.url[7:]}))[0] == 200
        assert [event.replica for event in front.events(CacheFlushed)] == [two.url[7:], one.url[7:]]
        code, told = await flush(front, json={"replica": "nowhere"})
        assert (code, told["error"]["type"]) == (404, "unknown_replica")
        assert one.url[7:] in told["error"]["message"]
        assert (await flush(front, json={"replicas": "all"}))[0] == 400
        assert (await flush(front, json={"replica": "http://[::1"}))[0] == 400
        assert (await flush(front, content=b"{"))[0] == 400
        assert (await flush(front, content=b'{"replica": "\xff"}'))[0] == 400


async def test_a_cache_in_use_keeps_its_credit_and_that_is_said() -> None:
    async with fake_engine(default=says("ok")) as engine, fronted(engine.url, admin_token="secret") as front:
        await front.chat("hello", "s")
        before = evidence(front, "s")
        engine.then(status(200, b'{"success": false}'), status(404), status(200, b"not JSON"))
        assert await flush(front) == (
            409,
            {
                "success": False,
                "replicas": [{"replica": engine.url[7:], "flushed": False, "why": "its cache is in use"}],
            },
        )
        code, told = await flush(front)
        assert (code, "VLLM_SERVER_DEV_MODE" in told["replicas"][0]["why"]) == (409, True)
        assert evidence(front, "s") == before > 0
        assert (await flush(front))[0] == 200
        assert evidence(front, "s") == 0


async def test_sglang_refuses_with_another_status() -> None:
    """As SGLang 0.5.23 answers while a request runs."""
    page = 'sglang:max_total_num_tokens{model_name="m"} 16384.0\n'
    async with fake_engine(page=page) as engine, fronted(engine.url, admin_token="secret") as front:
        engine.then(status(400, b"Flush cache failed.\n"))
        code, told = await flush(front)
        assert (code, told["replicas"][0]["why"]) == (409, "its cache is in use")
        assert engine.asked[-1].path == "/flush_cache"
        assert (await flush(front))[0] == 200


async def test_an_engine_that_does_not_answer_is_no_success() -> None:
    async with fronted("http://127.0.0.1:1", admin_token="secret") as front:
        code, told = await flush(front)
        assert (code, told["success"]) == (409, False)
        assert "cannot connect" in told["replicas"][0]["why"]


@pytest.mark.parametrize(
    "how", [drops(), cuts(b"{"), silent(asyncio.Event())], ids=["closes", "breaks off", "hangs"]
)
async def test_an_engine_that_was_asked_and_does_not_say_may_have_flushed(how: Behaviour) -> None:
    quick = Health(period_seconds=0.05, timeout_seconds=0.3)
    async with (
        fake_engine(default=says("ok")) as engine,
        fronted(engine.url, admin_token="secret", health=quick) as front,
    ):
        await front.chat("hello", "s")
        assert evidence(front, "s") > 0
        engine.then(how, how)  # a connection that was kept may have been closed before
        code, told = await flush(front)
        assert (code, told["success"]) == (409, False)
        assert "nothing is believed of it" in told["replicas"][0]["why"]
        assert evidence(front, "s") == 0


async def test_it_needs_the_token() -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token="secret") as front:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
            code, told = await flush(front, headers=headers)
            assert (code, "has not the token" in told["error"]["message"]) == (401, bool(headers))
        assert (await front.http.get("/v1/tao/flush")).status_code == 405
        assert engine.asked == []
    async with fake_engine() as engine, fronted(engine.url) as front:
        assert (await flush(front))[0] == 403


async def test_it_is_in_the_openapi_document() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        document = (await front.http.get("/openapi.json")).json()
        assert "409" in document["paths"]["/v1/tao/flush"]["post"]["responses"]
        assert document["components"]["schemas"]["FlushRequest"]["properties"].keys() == {"replica"}


async def test_a_restart_is_seen_by_the_start_of_the_process() -> None:
    """Its counters have outgrown those of before, so they say nothing."""
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.page = engine.metrics() + "process_start_time_seconds 1.7e9\n"
        await front.chat("hello", "s")
        seen = front.gateway.fleet
        await until(lambda: next(iter(seen)).sighting.started_at == 1.7e9)
        assert evidence(front, "s") > 0
        engine.served_tokens = 99_999
        engine.page = engine.metrics() + "process_start_time_seconds 1.7000001e9\n"
        await until(lambda: front.events(ReplicaLost))
        await until(lambda: evidence(front, "s") == 0)
