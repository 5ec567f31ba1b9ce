"""Broken engines, vanished clients, slow readers: each is seen at once, and nothing piles up."""

import asyncio
import socket

import pytest

from tao.gateway.config import Timeouts
from tests.gateway_http.wire_kit import (
    LAST,
    OK,
    STREAM,
    EngineSide,
    chunk,
    exchange,
    post,
    proxied,
    raw_client,
)

SECONDS = 5.0


# --- the engine cuts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cut",
    [
        STREAM + chunk(b"data: 1\n\n"),
        STREAM + b"20\r\ndata",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
    ],
)
async def test_a_cut_answer_is_visibly_incomplete(cut: bytes) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(cut)

    async with proxied(script) as (proxy, _):
        answer = await exchange(proxy.address, post())
        assert proxy.broken == ["the engine closed the connection in the middle of the body"]
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert not answer.endswith(LAST)


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\ncontent-le"])
async def test_no_answer_is_told_as_unreachable(begun: bytes) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(begun)

    async with proxied(script) as (proxy, engine):
        answer = await exchange(proxy.address, post())
    assert b"502" in answer
    assert b"the engine closed the connection before the headers were complete" in answer
    assert engine.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_plain_http_is_refused(answer: bytes) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(answer)
        await side.closed()

    async with proxied(script) as (proxy, _):
        assert b"HTTP/1.1 502" in await exchange(proxy.address, post())


async def test_broken_chunks_in_the_middle_end_the_answer() -> None:
    read = asyncio.Event()

    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(STREAM + chunk(b"one"))
        await read.wait()
        await side.send(b"not hex\r\n")
        await side.closed()

    async with proxied(script) as (proxy, _), raw_client(proxy.address) as client:
        await client.send(post())
        await client.read_until(b"one")
        read.set()
        assert not (await client.rest()).endswith(LAST)
        assert "no valid HTTP" in proxy.broken[0]


async def test_a_refused_connection_says_so() -> None:
    async def script(side: EngineSide) -> None:
        await side.closed()

    async with proxied(script) as (proxy, _):
        proxy.base_url = "http://127.0.0.1:1"
        assert b"cannot connect to 127.0.0.1:1" in await exchange(proxy.address, post())


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has other options")
async def test_an_engine_that_dies_without_a_word_is_given_up_within_half_a_minute() -> None:
    """A machine without power closes no connection, so the system has to probe; one that lives answers it by itself."""

    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(OK)

    async with proxied(script) as (proxy, _):
        await exchange(proxy.address, post())
        [origin] = proxy.upstream._origins.values()
        transport = origin.idle[0]._transport
        assert transport is not None
        connected = transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        after, period, count, unacknowledged = (
            connected.getsockopt(socket.IPPROTO_TCP, option) for option in options
        )
    assert after + period * count == 30
    assert unacknowledged == 30_000


# --- the client leaves ----------------------------------------------------------------------------


async def test_a_client_that_leaves_while_held_cancels_its_handler() -> None:
    async def script(side: EngineSide) -> None:
        await side.closed()

    async with proxied(script) as (proxy, engine):
        proxy.hold = asyncio.Event()
        async with raw_client(proxy.address) as client:
            await client.send(post())
            await asyncio.wait_for(proxy.entered.wait(), SECONDS)
        await asyncio.wait_for(proxy.cancelled.wait(), SECONDS)
    assert engine.connections == 0


@pytest.mark.parametrize("begun", [b"", STREAM + chunk(b"data: 1\n\n")])
async def test_a_client_that_leaves_stops_the_engine_at_once(begun: bytes) -> None:
    gone = asyncio.Event()
    asked = asyncio.Event()

    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(begun)
        asked.set()
        await side.closed()  # silent: it writes nothing by which it could notice
        gone.set()

    async with proxied(script) as (proxy, _):
        async with raw_client(proxy.address) as client:
            await client.send(post())
            await asyncio.wait_for(asked.wait(), SECONDS)
            if begun:
                await client.read_until(b"data: 1\n\n")
        left_at = asyncio.get_running_loop().time()
        await asyncio.wait_for(gone.wait(), SECONDS)
        assert asyncio.get_running_loop().time() - left_at < 0.5
        await asyncio.wait_for(proxy.cancelled.wait(), SECONDS)


async def test_a_client_that_leaves_while_it_sends_its_body_reaches_no_handler() -> None:
    async def script(side: EngineSide) -> None:
        await side.closed()

    async with proxied(script) as (proxy, _):
        async with raw_client(proxy.address) as client:
            await client.send(post(b"x" * 1000)[:-10])
        assert b"ok" not in await exchange(proxy.address, b"GET / HTTP/1.0\r\nbad header\r\n\r\n")
        assert proxy.seen == []


# --- back-pressure --------------------------------------------------------------------------------


async def test_a_slow_reader_holds_the_engine_back() -> None:
    sent = 0
    piece = chunk(b"x" * 65_536)
    stalled = asyncio.Event()

    async def script(side: EngineSide) -> None:
        nonlocal sent
        await side.request()
        await side.send(STREAM)
        while sent < 512 << 20:
            side.writer.write(piece)
            try:
                await asyncio.wait_for(side.writer.drain(), 1.0)
            except TimeoutError:
                stalled.set()
                return
            sent += len(piece)

    async with proxied(script) as (proxy, _), raw_client(proxy.address) as client:
        await client.send(post())
        await asyncio.wait_for(stalled.wait(), 30)
    assert sent < 24 << 20


async def test_a_large_answer_read_slowly_is_complete() -> None:
    body = bytes(range(256)) * 16_384  # 4 MiB

    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async with proxied(script) as (proxy, engine):
        for _ in range(2):
            async with raw_client(proxy.address) as client:
                await client.send(post())
                await client.read_until(b"\r\n\r\n")
                got = bytearray()
                while len(got) < len(body):
                    got += await asyncio.wait_for(client.reader.read(30_000), SECONDS)
                    await asyncio.sleep(0)
            assert got == body
    assert engine.connections == 1


# --- pooled connections ---------------------------------------------------------------------------


async def test_connections_are_used_again() -> None:
    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(OK)

    async with proxied(script) as (proxy, engine):
        for _ in range(5):
            assert (await exchange(proxy.address, post())).endswith(b"ok")
    assert (engine.connections, len(engine.requests)) == (1, 5)


async def test_of_an_engine_that_is_forgotten_no_connection_is_kept_and_what_runs_ends_well() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(OK[:-1])
            asked.set()
            await goes_on.wait()
            await side.send(OK[-1:])

    async with proxied(script) as (proxy, engine):
        asking = asyncio.create_task(exchange(proxy.address, post()))
        await asyncio.wait_for(asked.wait(), SECONDS)
        proxy.upstream.forget(engine.url)
        goes_on.set()
        assert (await asking).endswith(b"ok")
        assert proxy.upstream._origins == {}
        assert (await exchange(proxy.address, post())).endswith(b"ok")
        assert engine.connections == 2
        [origin] = proxy.upstream._origins.values()
        [unused] = origin.idle
        proxy.upstream.forget(engine.url)
        assert not unused.usable
        assert proxy.upstream._origins == {}


async def test_a_stale_connection_costs_one_retry_on_a_fresh_one() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(OK)
        await side.request()
        if side.number > 1:
            await side.send(OK)
        # The first connection closes in the moment in which its second request arrives.

    async with proxied(script) as (proxy, engine):
        for _ in range(2):
            assert (await exchange(proxy.address, post())).endswith(b"ok")
    assert (engine.connections, len(engine.requests)) == (2, 3)


async def test_there_is_no_second_retry() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        if side.number == 1:
            await side.send(OK)
            await side.request()

    async with proxied(script) as (proxy, engine):
        assert (await exchange(proxy.address, post())).endswith(b"ok")
        assert b"502" in await exchange(proxy.address, post())
    assert engine.connections == 2


async def test_nothing_is_sent_twice_once_an_answer_has_begun() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(OK)
        if await side.request():
            await side.send(b"HTTP/1.1 5")

    async with proxied(script) as (proxy, engine):
        assert (await exchange(proxy.address, post())).endswith(b"ok")
        assert b"502" in await exchange(proxy.address, post())
    assert (engine.connections, len(engine.requests)) == (1, 2)


async def test_bytes_that_nobody_asked_for_never_reach_the_next_request() -> None:
    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    async with proxied(script) as (proxy, engine):
        for _ in range(3):
            assert (await exchange(proxy.address, post())).endswith(b"\r\n\r\nok")
    assert engine.connections == 3


async def test_an_answer_that_closes_is_not_used_again() -> None:
    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")

    async with proxied(script) as (proxy, engine):
        for _ in range(2):
            assert (await exchange(proxy.address, post())).endswith(b"ok")
    assert engine.connections == 2


# --- time-outs ------------------------------------------------------------------------------------


async def test_headers_that_do_not_come_in_time() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.closed()

    async with proxied(script, timeouts=Timeouts(first_byte_seconds=0.2)) as (proxy, _):
        assert b"sent no headers within 0.2 s" in await exchange(proxy.address, post())


async def test_a_stream_that_falls_silent() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(STREAM)
        for _ in range(4):
            await side.send(chunk(b"x"))
            await asyncio.sleep(0.1)
        await side.closed()

    async with proxied(script, timeouts=Timeouts(silence_seconds=0.25)) as (proxy, _):
        answer = await exchange(proxy.address, post())
        assert proxy.broken == ["the engine sent nothing for 0.25 s"]
    assert answer.count(chunk(b"x")) == 4


async def test_a_client_that_stays_but_does_not_read_is_cut_off() -> None:
    """What waits for it is freed, the engine's work included."""
    cut = asyncio.Event()

    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(STREAM)
        try:
            while True:
                await side.send(chunk(b"x" * 65_536))
        except ConnectionError:
            cut.set()

    async with (
        proxied(script, timeouts=Timeouts(client_stall_seconds=0.3)) as (proxy, _),
        raw_client(proxy.address) as client,
    ):
        await client.send(post())
        await client.read_until(b"\r\n\r\n")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.wait_for(proxy.cancelled.wait(), SECONDS)
        await asyncio.wait_for(cut.wait(), SECONDS)


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(STREAM)
        for _ in range(40):
            await side.send(chunk(b"x" * 65_536))
        await side.send(LAST)

    async with (
        proxied(script, timeouts=Timeouts(client_stall_seconds=0.5)) as (proxy, _),
        raw_client(proxy.address) as client,
    ):
        await client.send(post())
        got = 0
        while piece := await asyncio.wait_for(client.reader.read(65_536), SECONDS):
            got += len(piece)
            await asyncio.sleep(0.03)
        assert got > 40 * 65_536
        assert not proxy.cancelled.is_set()


async def test_a_connection_that_is_not_accepted_in_time() -> None:
    async def script(side: EngineSide) -> None:
        await side.closed()

    async with proxied(script, timeouts=Timeouts(connect_seconds=0.2)) as (proxy, _):
        proxy.base_url = "http://192.0.2.1:9"  # TEST-NET: nobody answers
        answer = await exchange(proxy.address, post())
    assert b"HTTP/1.1 502" in answer
