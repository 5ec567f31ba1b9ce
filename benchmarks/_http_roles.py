"""The processes that `http_path.py` measures: a fake engine and proxies in front of it.

usage: python benchmarks/_http_roles.py engine|pass|aiohttp|fastapi PORT [ENGINE_URL]
Each prints `ready` when it listens and runs until it is terminated.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import httptools
import uvloop

TOKENS = 16
METRICS = b"""\
vllm:num_requests_running{engine="0"} 0.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:kv_cache_usage_perc{engine="0"} 0.0
vllm:prefix_cache_queries_total{engine="0"} 0.0
vllm:prefix_cache_hits_total{engine="0"} 0.0
vllm:num_preemptions_total{engine="0"} 0.0
vllm:prompt_tokens_total{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 0.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000000"} 1.0
"""


# --- the fake engine ------------------------------------------------------------------------------


class FakeEngine(asyncio.Protocol):
    """Streams an answer of `TOKENS` events, one write each, as fast as it can."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""
        self.tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:  # sglang-router asks for HTTP/2 first
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"POST":
            task = asyncio.get_running_loop().create_task(self.stream())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            return
        page = METRICS if self.url == b"/metrics" else b"{}"
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page))

    async def stream(self) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = {"id": "c-1", "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
        usage = {"prompt_tokens": 210, "completion_tokens": TOKENS}
        last = {"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        events = [json.dumps(chunk)] * TOKENS + [json.dumps(last), "[DONE]"]
        for number, event in enumerate(events):
            data = b"data: %b\n\n" % event.encode()
            framed = b"%x\r\n%b\r\n" % (len(data), data)
            self.transport.write(head + framed if number == 0 else framed)
            await asyncio.sleep(0)
        self.transport.write(b"0\r\n\r\n")


async def run_engine(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FakeEngine, "127.0.0.1", port, backlog=1024)
    ready()
    await server.serve_forever()


# --- the proxies ----------------------------------------------------------------------------------


class PassThrough:
    """A handler that only passes on: our transport without any scheduling."""

    def __init__(self, upstream: Any, base_url: str) -> None:
        self.upstream = upstream
        self.base_url = base_url

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    async def handle(self, request: Any, client: Any) -> None:
        answer = await self.upstream.send(self.base_url, request)
        try:
            await client.start(answer.status, answer.headers)
            async for chunk in answer.chunks():
                await client.send(chunk)
            await client.finish()
        finally:
            answer.close()


class AiohttpUpstream:
    """aiohttp in the place of our client, with the settings that make it fast and transparent."""

    def __init__(self) -> None:
        self.session: aiohttp.ClientSession | None = None

    async def send(self, base_url: str, request: Any) -> "AiohttpAnswer":
        if self.session is None:
            self.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        drop = {b"host", b"content-length", b"connection"}
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in request.headers if n not in drop]
        url = base_url + request.target
        return AiohttpAnswer(await self.session.post(url, headers=headers, data=request.body))


class AiohttpAnswer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.status = response.status
        self.headers = [
            (n.lower(), v)
            for n, v in response.raw_headers
            if n.lower() not in {b"transfer-encoding", b"connection"}
        ]

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.response.content.readany():
            yield chunk

    def close(self) -> None:
        self.response.close()


async def run_transport(kind: str, port: int, engine_url: str) -> None:
    from tao.gateway.config import Timeouts  # noqa: PLC0415  (this role only)
    from tao.gateway.http.asgi import App  # noqa: PLC0415
    from tao.gateway.http.server import serving  # noqa: PLC0415
    from tao.gateway.http.upstream import HttpUpstream  # noqa: PLC0415

    upstream = HttpUpstream(Timeouts()) if kind == "pass" else AiohttpUpstream()
    async with serving(App(PassThrough(upstream, engine_url), 1 << 26), port=port):
        ready()
        await asyncio.Event().wait()


def run_fastapi(port: int, engine_url: str) -> None:
    import fastapi  # noqa: PLC0415
    import httpx  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415
    from fastapi.responses import StreamingResponse  # noqa: PLC0415

    app = fastapi.FastAPI()
    client = httpx.AsyncClient(timeout=None)

    async def proxy(request: fastapi.Request) -> StreamingResponse:
        body = await request.json()
        sent = client.build_request("POST", engine_url + request.url.path, json=body)
        answer = await client.send(sent, stream=True)

        async def stream() -> AsyncIterator[bytes]:
            async for chunk in answer.aiter_raw():
                yield chunk
            await answer.aclose()

        return StreamingResponse(stream(), answer.status_code, media_type=answer.headers.get("content-type"))

    app.add_api_route("/{path:path}", proxy, methods=["POST"], response_model=None)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)).run()


def ready() -> None:
    print("ready", flush=True)


def main() -> None:
    role, port, engine_url = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    if role == "fastapi":
        run_fastapi(port, engine_url)
    else:
        uvloop.run(run_engine(port) if role == "engine" else run_transport(role, port, engine_url))


if __name__ == "__main__":
    main()
