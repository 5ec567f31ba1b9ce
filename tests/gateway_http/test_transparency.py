"""What goes in comes out: bytes, headers and framing, unchanged and at once."""

import gzip

import pytest

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


async def ok(side: EngineSide) -> None:
    while await side.request():
        await side.send(OK)


async def test_the_request_reaches_the_engine_unchanged() -> None:
    body = b'{"a" :1,\n "b": "\xc3\xa9"}'
    extra = (
        b"authorization: Bearer s3cret",
        b"X-Unknown: One",
        b"x-unknown: Two",
        b"accept-encoding: br, zstd",
    )
    async with proxied(ok) as (proxy, engine):
        await exchange(proxy.address, post(body, *extra, target=b"/v1/x%20y/?a=%2F&b=+"))
    head, _, sent = engine.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/x%20y/?a=%2F&b=+ HTTP/1.1"
    assert sent == body
    assert sorted(lines[1:]) == [
        b"accept-encoding: br, zstd",
        b"authorization: Bearer s3cret",
        b"content-length: %d" % len(body),
        b"host: " + engine.url.removeprefix("http://").encode(),
        b"x-unknown: One",
        b"x-unknown: Two",
    ]


async def test_fields_of_one_connection_stop_at_the_gateway() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(
            b"HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-far: 1\r\n"
            b"content-length: 0\r\n\r\n"
        )

    async with proxied(script) as (proxy, engine):
        request = (
            b"GET /v1/x HTTP/1.1\r\nhost: g\r\nconnection: close, x-near\r\nx-near: 1\r\nte: trailers\r\n\r\n"
        )
        answer = await exchange(proxy.address, request)
    assert b"x-hop" not in answer
    assert b"keep-alive" not in answer
    assert b"x-far: 1" in answer
    assert engine.requests[0].split(b"\r\n")[1:-2] == [
        b"host: " + engine.url.removeprefix("http://").encode()
    ]


async def test_header_bytes_beyond_ascii_survive_both_ways() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(b"HTTP/1.1 200 OK\r\nx-back: \xe9\xff \xc3\xa9\r\ncontent-length: 0\r\n\r\n")

    async with proxied(script) as (proxy, engine):
        answer = await exchange(proxy.address, post(b"{}", b"x-there: \xe9\xff \xc3\xa9"))
    assert b"\r\nx-there: \xe9\xff \xc3\xa9\r\n" in engine.requests[0]
    assert b"\r\nx-back: \xe9\xff \xc3\xa9\r\n" in answer


async def test_a_compressed_body_is_not_touched() -> None:
    packed = gzip.compress(b"x" * 1000)

    async def script(side: EngineSide) -> None:
        await side.request()
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
        await side.send(head + packed)

    async with proxied(script) as (proxy, _):
        answer = await exchange(proxy.address, post())
    assert b"content-encoding: gzip" in answer
    assert answer.endswith(b"\r\n\r\n" + packed)


async def test_pieces_of_a_stream_arrive_at_once() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(STREAM + chunk(b"data: 1\n\n"))
        await side.reader.read(1)  # sends no more until the client has gone

    async with proxied(script) as (proxy, _), raw_client(proxy.address) as client:
        await client.send(post())
        assert (await client.read_until(b"data: 1\n\n")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("request_line", "answer", "ending"),
    [
        (
            b"HEAD /v1/x",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            b"content-length: 5\r\nconnection: close\r\n\r\n",
        ),
        (b"GET /v1/x", b"HTTP/1.1 204 No Content\r\n\r\n", b"\r\n\r\n"),
        (
            b"GET /v1/x",
            b'HTTP/1.1 304 Not Modified\r\netag: "1"\r\n\r\n',
            b'etag: "1"\r\nconnection: close\r\n\r\n',
        ),
        (b"GET /v1/x", b"HTTP/1.1 200 OK\r\n\r\nto the end", chunk(b"to the end") + LAST),
        (b"GET /v1/x", b"HTTP/1.0 200 OK\r\n\r\nold", chunk(b"old") + LAST),
        (b"GET /v1/x", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"\r\n\r\nok"),
        (b"GET /v1/x", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"\r\n\r\nok"),
        (b"GET /v1/x", STREAM + chunk(b"x") + b"0\r\nx-trailer: 1\r\n\r\n", chunk(b"x") + LAST),
        (b"OPTIONS /v1/x", OK, b"\r\n\r\nok"),
        (b"DELETE /v1/x", b"HTTP/1.1 404 Nope\r\ncontent-length: 0\r\n\r\n", b"\r\n\r\n"),
    ],
)
async def test_all_kinds_of_framing(request_line: bytes, answer: bytes, ending: bytes) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        await side.send(answer)

    async with proxied(script) as (proxy, _):
        got = await exchange(
            proxy.address, request_line + b" HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
        )
    assert got.endswith(ending), got
    assert b"link: x" not in got


async def test_an_answer_split_at_every_byte_is_the_same() -> None:
    answer = b"HTTP/1.1 200 OK\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"hello") + LAST
    splits = list(range(1, len(answer)))

    async def script(side: EngineSide) -> None:
        while await side.request():
            split = splits[len(side.requests) - 1]
            side.writer.write(answer[:split])
            await side.writer.drain()
            side.writer.write(answer[split:])

    async with proxied(script) as (proxy, engine):
        for _ in splits:
            got = await exchange(proxy.address, post())
            assert got.startswith(b"HTTP/1.1 200 OK\r\nx-a: b\r\n")
            body = got.partition(b"\r\n\r\n")[2]
            assert b"".join(body.split(b"\r\n")[1::2]) == b"hello"
    assert engine.connections == 1


async def test_a_path_prefix_of_the_engine_is_kept() -> None:
    async with proxied(ok) as (proxy, engine):
        proxy.base_url += "/serve/llm/"
        await exchange(proxy.address, post())
    assert engine.requests[0].startswith(b"POST /serve/llm/v1/x HTTP/1.1\r\n")
