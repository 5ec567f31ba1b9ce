"""A shutdown, step by step: what is held or new is refused, what runs may finish, what takes too long is cut off."""

import asyncio
from typing import Any

import httpx
import pytest
from aiohttp import web
from fake_engine import Asked, begin_stream, event, fake_engine, says, silent, usage
from gateway_kit import fronted, until, words

from tao.core.events import TurnFailed
from tao.gateway.config import KeepAlive, Timeouts

SIGNS = KeepAlive(grace_seconds=0.02, period_seconds=0.02)


async def test_held_ones_are_refused_and_running_ones_finish() -> None:
    gate = asyncio.Event()
    busy = says("a b", gate=gate, counts=usage(2000, 10))
    async with (
        fake_engine(capacity_tokens=4096, default=busy) as engine,
        fronted(engine.url, keep_alive=SIGNS) as front,
    ):
        running = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        whole = front.chatting(words(2000), "second")
        stream = front.chatting(words(2000), "third", stream=True)
        await until(lambda: front.held() == 2)
        body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": words(2000)}]}
        async with front.http.stream("POST", "/v1/messages", json={**body, "stream": True}) as ping:
            lines = ping.aiter_lines()
            assert await anext(lines) == "event: ping"
            draining = asyncio.ensure_future(front.gateway.drain())
            rest = [line async for line in lines]
        assert (await whole).json()["error"]["code"] == "draining"
        assert '"code":"draining"' in (await stream).text
        assert "event: error" in rest
        assert (await front.chat(session="new")).status_code == 503
        assert not draining.done()
        gate.set()
        assert (await running).status_code == 200
        assert await draining is True


async def test_a_drain_without_turns_is_over_at_once() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(session="s")
        assert await front.gateway.drain() is True
        models = await front.http.get("/v1/models")
        assert models.status_code == 200, "what is no turn is answered until the end"


async def test_what_is_no_turn_may_finish_too() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=silent(gate)) as engine, fronted(engine.url) as front:
        passing = asyncio.ensure_future(front.http.post("/v1/embeddings", json={"model": "m"}))
        await until(lambda: engine.now == 1)
        draining = asyncio.ensure_future(front.gateway.drain())
        assert (await front.http.get("/readyz")).status_code == 503, "the drain has begun"
        assert not draining.done()
        gate.set()
        assert (await passing).status_code == 200
        assert await draining is True


async def half_an_answer(asked: Asked) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "100"})
    await response.prepare(asked.http)
    await response.write(b'{"half":')
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_what_has_no_answer_at_the_bound_gets_a_clear_one(path: str) -> None:
    bounds = Timeouts(drain_seconds=0.05)
    async with (
        fake_engine(default=silent(asyncio.Event())) as engine,
        fronted(engine.url, timeouts=bounds) as front,
    ):
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        waiting = asyncio.ensure_future(front.http.post(path, json=body))
        await until(lambda: engine.now == 1)
        assert await front.gateway.drain() is False
        front.gateway.cut_off()
        answer = await waiting
        assert answer.status_code == 503
        assert "took longer than it waits for" in answer.json()["error"]["message"]
        await until(lambda: engine.aborted == 1)
        assert front.reserved_tokens(engine.url) == 0


async def test_half_an_answer_at_the_bound_is_visibly_cut() -> None:
    async with fake_engine(default=half_an_answer) as engine, fronted(engine.url) as front:
        waiting = front.chatting(session="s")
        await until(lambda: engine.now == 1)
        await until(lambda: front.turns() == 1)
        async with front.http.stream("POST", "/v1/embeddings", json={}) as passing:
            pieces = passing.aiter_raw()
            assert await anext(pieces) == b'{"half":'
            front.gateway.cut_off()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
        with pytest.raises(httpx.RemoteProtocolError):
            await waiting
        (failed,) = front.events(TurnFailed)
        assert "shutting down" in failed.cause


async def test_half_an_event_at_the_bound_is_only_cut() -> None:
    half = event({"content": "a"}) + b'data: {"choices":[{"del'

    async def half_an_event(asked: Asked) -> web.StreamResponse:
        response = await begin_stream(asked)
        await response.write(half)
        await asyncio.Event().wait()
        raise AssertionError

    async with fake_engine(default=half_an_event) as engine, fronted(engine.url) as front:
        got = b""
        async with front.streaming(session="s") as stream:
            pieces = stream.aiter_raw()
            while got != half:
                got += await anext(pieces)
            front.gateway.cut_off()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
        (failed,) = front.events(TurnFailed)
        assert "shutting down" in failed.cause
