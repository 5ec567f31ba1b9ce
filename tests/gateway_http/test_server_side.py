"""The gateway's own server: framing that could be read in two ways, limits, start and stop."""

import asyncio
import contextlib
import json

import pytest
import structlog

from tao.gateway.exchange import Client, ClientRequest
from tao.gateway.http import server
from tao.gateway.http.asgi import App
from tao.gateway.http.server import serving
from tests.gateway_http.wire_kit import LIMIT, OK, EngineSide, exchange, post, proxied, raw_client


async def ok(side: EngineSide) -> None:
    while await side.request():
        await side.send(OK)


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 5",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: 5\r\ncontent-length: 5",
        b"content-length: 5, 5",
        b"content-length: +5",
        b"content-length: 5 5",
        b"content-length: -1",
        b"content-length: 0x5",
        b"content-length : 5",
        b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding : chunked",
        b"x: y\r\n folded: z",
        b"x: y\nz: bare",
        b"x: \x00",
        b"bad name: x",
    ],
)
async def test_ambiguous_requests_reach_no_engine(head: bytes) -> None:
    smuggled = b"0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nhost: g\r\n\r\n"
    request = b"POST /v1/x HTTP/1.1\r\nhost: g\r\n" + head + b"\r\n\r\n" + smuggled
    async with proxied(ok) as (proxy, engine):
        answer = await exchange(proxy.address, request)
    assert answer.startswith(b"HTTP/1.1 400")
    assert engine.requests == []
    assert proxy.seen == []


async def test_chunks_that_are_no_chunks_reach_no_engine() -> None:
    request = b"POST /v1/x HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n5;x\r\nhello\r\nZZ\r\n"
    async with proxied(ok) as (proxy, engine):
        assert (await exchange(proxy.address, request)).startswith(b"HTTP/1.1 400")
    assert engine.requests == []


async def test_a_chunked_request_is_sent_on_with_its_length() -> None:
    request = b"POST /v1/x HTTP/1.1\r\nhost: g\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    async with proxied(ok) as (proxy, engine):
        answer = await exchange(proxy.address, request + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert answer.endswith(b"ok")
    assert b"\r\ncontent-length: 5\r\n" in engine.requests[0]
    assert b"transfer-encoding" not in engine.requests[0]
    assert engine.requests[0].endswith(b"\r\n\r\nabcde")


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with proxied(ok) as (proxy, engine):
        first = post(b"1").replace(b"connection: close\r\n", b"")
        answer = await exchange(proxy.address, first + post(b"2"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [request[-1:] for request in engine.requests] == [b"1", b"2"]


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_beyond_the_limit_is_refused_with_a_message(framing: str) -> None:
    body = b"x" * (LIMIT + 1)
    request = post(body, target=b"/v1/messages")
    if framing == "chunked":
        head = request.partition(b"content-length")[0] + b"transfer-encoding: chunked\r\n\r\n"
        request = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with proxied(ok) as (proxy, engine):
        answer = await exchange(proxy.address, request)
        at_the_limit = await exchange(proxy.address, post(b"x" * LIMIT))
    assert answer.startswith(b"HTTP/1.1 413")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["type"] == "error"
    assert f"exceeds {LIMIT} bytes" in error["error"]["message"]
    assert "limits.body_bytes_max" in error["error"]["message"]
    assert at_the_limit.endswith(b"ok")
    assert len(engine.requests) == 1


async def test_a_client_that_asks_first_sends_no_body_in_vain() -> None:
    async with proxied(ok) as (proxy, _), raw_client(proxy.address) as client:
        head = b"POST /v1/x HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
        await client.send(head % (LIMIT + 1))
        assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    async with proxied(ok) as (proxy, engine), raw_client(proxy.address) as client:
        await client.send(head % 2)
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"{}")
        assert (await client.read_until(b"ok")).startswith(b"HTTP/1.1 200 OK")
    assert b"expect" not in engine.requests[0]


async def test_endless_headers_are_refused() -> None:
    request = b"GET /v1/x HTTP/1.1\r\nhost: g\r\nconnection: close\r\nx: "
    async with proxied(ok) as (proxy, _):
        assert (await exchange(proxy.address, request + b"y" * 300_000)).startswith(b"HTTP/1.1 431")
        assert (await exchange(proxy.address, request + b"y" * 100_000 + b"\r\n\r\n")).endswith(b"ok")


async def test_a_head_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time counts from its first byte, not from the last one."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    async with proxied(ok) as (proxy, _), raw_client(proxy.address) as client:
        await client.send(b"GET /v1/x HTTP/1.1\r\nx: ")

        async def trickle() -> None:
            while True:
                await client.send(b"y")
                await asyncio.sleep(0.02)

        trickling = asyncio.get_running_loop().create_task(trickle())
        with contextlib.suppress(ConnectionError):  # closed while another byte came
            assert await client.rest() == b""
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
    assert proxy.seen == []


class Failing:
    """A handler that raises, before or after it has begun to answer."""

    def __init__(self, *, begun: bool, fails_to_start: bool = False) -> None:
        self._begun = begun
        self._fails_to_start = fails_to_start
        self.calls: list[str] = []

    async def start(self) -> None:
        if self._fails_to_start:
            raise ValueError("no such policy")
        self.calls.append("start")

    async def close(self) -> None:
        self.calls.append("close")

    async def handle(self, request: ClientRequest, client: Client) -> None:
        if self._begun:
            await client.start(200, [(b"content-length", b"10")])
            await client.send(b"half")
        raise ValueError("a bug")


async def test_a_failing_handler_answers_500_or_cuts() -> None:
    async with serving(App(Failing(begun=False), LIMIT)) as address:
        answer = await exchange(address, post(target=b"/v1/chat/completions"))
        assert answer.startswith(b"HTTP/1.1 500")
        assert b"TAO failed to serve this request" in answer
        assert b"a bug" not in answer
    async with serving(App(Failing(begun=True), LIMIT)) as address:
        assert (await exchange(address, post())).endswith(b"\r\n\r\nhalf")


async def test_the_handler_starts_and_closes_with_the_server() -> None:
    handler = Failing(begun=False)
    async with serving(App(handler, LIMIT)):
        assert handler.calls == ["start"]
    assert handler.calls == ["start", "close"]
    refusing = App(Failing(begun=False, fails_to_start=True), LIMIT)
    with pytest.raises(RuntimeError, match="did not start"):
        await serving(refusing).__aenter__()


async def test_an_address_in_use_is_named() -> None:
    async with serving(App(Failing(begun=False), LIMIT)) as (host, port):
        with pytest.raises(OSError, match=f"cannot listen on {host}:{port}"):
            await serving(App(Failing(begun=False), LIMIT), host, port).__aenter__()


async def test_a_stop_ends_running_requests_within_its_grace() -> None:
    async def silent(side: EngineSide) -> None:
        await side.closed()

    async with proxied(silent) as (proxy, _):
        reader, writer = await asyncio.open_connection(*proxy.address)
        writer.write(post())
        await asyncio.wait_for(proxy.entered.wait(), 5)
    assert proxy.cancelled.is_set()
    await reader.read()
    writer.close()


H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAA\r\n"


@pytest.mark.parametrize("cut", [1, 60, 170, 190, 400])
@pytest.mark.parametrize("offer", [H2C, b"connection: upgrade\r\nupgrade: websocket\r\n"])
async def test_an_offer_of_another_protocol_is_passed_over(offer: bytes, cut: int) -> None:
    """Java's HTTP client and `curl --http2` offer h2c with each request; the body belongs to the request all the same."""
    body = b'{"a": 1}'
    first = b"POST /v1/x HTTP/1.1\r\nhost: g\r\n" + offer + b"content-length: 8\r\n\r\n" + body
    chunks = b"4\r\n" + body[:4] + b"\r\n4\r\n" + body[4:] + b"\r\n0\r\n\r\n"
    second = b"POST /v1/x HTTP/1.1\r\nhost: g\r\n" + offer + b"transfer-encoding: chunked\r\n\r\n" + chunks
    sent = first + second + post(body)
    async with proxied(ok) as (proxy, engine), raw_client(proxy.address) as client:
        await client.send(sent[:cut])
        await client.send(sent[cut:])
        assert (await client.rest()).count(b"200 OK") == 3
    assert [request.body for request in proxy.seen] == [body] * 3
    assert not any(
        b"upgrade" in request.lower() or b"http2" in request.lower() for request in engine.requests
    )


class Resetting:
    """A handler whose client is gone when it answers."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    async def handle(self, request: ClientRequest, client: Client) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("unable to perform operation; the handler is closed") from None


async def test_a_write_that_fails_because_the_client_is_gone_is_no_defect() -> None:
    with structlog.testing.capture_logs() as logs:
        handler = Resetting()
        async with serving(App(handler, LIMIT)) as address, raw_client(address) as client:
            await client.send(post())
            await asyncio.wait_for(handler.entered.wait(), 5)
            client.leave()
    assert not [entry for entry in logs if entry["event"] == "a request failed"]
