"""A client that hangs up, in each phase of its turn: everything it held is free at once, on the engine too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fake_engine import fake_engine, says, silent
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.events import ClientLeft, TurnStopped
from tao.core.phases import Away
from tao.gateway.config import KeepAlive

AT_ONCE_SECONDS = 1.0  # one period of the decision


@asynccontextmanager
async def leaving(
    front: Front, text: str, session: str, **more: object
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A request in the background whose client hangs up when the block ends; then nothing of it may be left soon."""
    task = front.chatting(text, session, **more)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    left_at = asyncio.get_running_loop().time()
    await until(lambda: front.events(ClientLeft))
    assert asyncio.get_running_loop().time() - left_at < AT_ONCE_SECONDS


async def test_while_held() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate)) as engine,
        fronted(engine.url) as front,
    ):
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        async with leaving(front, words(2000), "second"):
            await until(lambda: front.held() == 1)
        assert front.held() == 0
        assert front.session("second") is None
        assert len(engine.asked) == 1
        gate.set()
        assert (await first).status_code == 200
        metrics = (await front.http.get("/metrics")).text
    assert 'tao_turns_total{outcome="client-left"} 1.0' in metrics
    assert 'tao_turns_total{outcome="finished"} 1.0' in metrics


async def test_while_held_with_headers_out() -> None:
    gate = asyncio.Event()
    signs = KeepAlive(grace_seconds=0.02, period_seconds=0.02)
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate)) as engine,
        fronted(engine.url, keep_alive=signs) as front,
    ):
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        async with front.streaming(words(2000), "second") as held:
            assert held.headers["x-tao-decision"] == "held"
            async for line in held.aiter_lines():
                assert line == ": keep-alive"
                break
        await until(lambda: front.held() == 0)
        assert front.session("second") is None
        gate.set()
        await first


@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_byte(stream: bool) -> None:
    never = asyncio.Event()
    async with fake_engine(default=silent(never)) as engine, fronted(engine.url) as front:
        async with leaving(front, words(500), "s", stream=stream):
            await until(lambda: engine.now == 1)
            assert front.reserved_tokens(engine.url) > 500
        assert front.reserved_tokens(engine.url) == 0
        assert isinstance(front.session("s").phase, Away)  # type: ignore[union-attr]
        await until(lambda: engine.aborted == 1, AT_ONCE_SECONDS)


async def test_while_streaming() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as engine, fronted(engine.url) as front:
        async with front.streaming(words(500), "s") as response:
            async for _ in response.aiter_bytes():
                break
            assert front.reserved_tokens(engine.url) > 500
        await until(lambda: front.events(TurnStopped), AT_ONCE_SECONDS)
        assert front.reserved_tokens(engine.url) == 0
        await until(lambda: engine.aborted == 1, AT_ONCE_SECONDS)
        session = front.session("s")
        assert session is not None
        assert isinstance(session.phase, Away)
        assert session.evidence, "its prompt was computed, so it is in the cache"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_emulated_engine_stops_decoding(stream: bool) -> None:
    long = {"max_tokens": 5000, "ignore_eos": True, "stream": stream}
    async with emulated(speed=1.0) as replica, fronted(replica.url) as front:
        async with leaving(front, "write a book", "s", **long):
            await until(lambda: replica.service.model.stats().running == 1)
        await until(lambda: replica.service.model.stats().running == 0, AT_ONCE_SECONDS)
        assert replica.service.loop.finished_reasons["abort"] == 1
        assert front.reserved_tokens(replica.url) == 0


async def test_an_emulated_engine_stops_computing_the_prompt() -> None:
    async with emulated(speed=0.05) as replica, fronted(replica.url) as front:
        async with leaving(front, words(20_000), "s"):
            await until(lambda: replica.service.model.stats().running == 1)
            assert front.reserved_tokens(replica.url) > 20_000
        await until(lambda: replica.service.model.stats().running == 0, AT_ONCE_SECONDS)
        assert front.reserved_tokens(replica.url) == 0


async def test_the_session_comes_back_after_it_left() -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("a b", gate=gate))
        async with leaving(front, "hello", "s", stream=True):
            await until(lambda: engine.now == 1)
        assert (await front.chat("hello", "s")).status_code == 200
        session = front.session("s")
        assert session is not None
        assert session.turns_finished == 1


async def test_two_turns_of_one_session_and_one_client_leaves() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as engine, fronted(engine.url) as front:
        stays = front.chatting("hello", "s", stream=True)
        await until(lambda: engine.now == 1)
        async with leaving(front, "hello there", "s", stream=True):
            await until(lambda: engine.now == 2)
            assert front.turns() == 2
        assert front.turns() == 1
        assert front.reserved_tokens(engine.url) > 0
        gate.set()
        assert (await stays).status_code == 200
        session = front.session("s")
        assert session is not None
        assert session.turns_finished == 1
