"""The data path beside a direct connection and a minimal fastapi+httpx proxy, before the same fake engine.

usage: python benchmarks/http_path.py [--rounds N] [--paths NAME,NAME] [--json FILE]
In each round every path is measured once, with one stream (median time to the first byte) and with 32 streams
(requests per second); the medians over all rounds count, so that a machine that changes its speed harms no path more
than the others. Paths: `direct`; `pass` (our transport alone); `serve` (`tao serve`, scheduling included, round-robin);
`aiohttp` (our server with aiohttp as the client); `fastapi` (fastapi and httpx, the stack of ThunderAgent).
Targets: `serve` first byte <= direct + 1.5 ms; `serve` at 32 streams >= 5 times `fastapi`.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import httptools
import uvloop

PATHS = ("direct", "pass", "serve", "aiohttp", "fastapi")
TOKENS = 16
SINGLE_REQUESTS = 60
STREAMS = 32
REQUESTS_PER_STREAM = 20
BODY = {
    "model": "tiny",
    "stream": True,
    "messages": [{"role": "user", "content": "hello " * 200}],
    "max_tokens": TOKENS,
}
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
        self.parser.feed_data(data)

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
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)


# --- the load -------------------------------------------------------------------------------------


class Stream(asyncio.Protocol):
    """A client of one connection, as cheap as can be: on two cores a heavy client would be measured instead."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.set_result(None)
        self.body = bytearray()
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self.body:
            self.first = time.perf_counter()
        self.body += data
        if self.body.endswith(b"0\r\n\r\n"):
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError(f"cut after {bytes(self.body[:200])!r}"))

    async def request(self, data: bytes) -> float:
        """Seconds from the request to the first byte of its answer."""
        self.done = asyncio.get_running_loop().create_future()
        self.body.clear()
        begun = time.perf_counter()
        self.transport.write(data)
        await self.done
        assert self.body.startswith(b"HTTP/1.1 200"), bytes(self.body[:200])
        assert b"data: [DONE]" in self.body
        return self.first - begun


async def load(url: str, requests: int, streams: int) -> tuple[float, float]:
    """(median seconds to the first byte, requests per second)."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(BODY).encode()
    firsts: list[float] = []

    async def stream(number: int) -> None:
        _, client = await asyncio.get_running_loop().create_connection(Stream, host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nx-session-id: s{number}\r\n"
        data = (
            head.encode() + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        firsts.extend([await client.request(data) for _ in range(requests // streams)])
        client.transport.close()

    started = time.perf_counter()
    await asyncio.gather(*(stream(number) for number in range(streams)))
    elapsed = time.perf_counter() - started
    return statistics.median(firsts), len(firsts) / elapsed


async def measure(paths: dict[str, "Running"], rounds: int) -> dict[str, dict[str, list[float]]]:
    columns = ("first_byte_ms", "requests_per_second", "cpu_ms_per_request")
    figures: dict[str, dict[str, list[float]]] = {name: {column: [] for column in columns} for name in paths}
    for path in paths.values():
        await load(path.url, 128, 8)
    names = list(paths)
    for number in range(rounds):
        # Each round begins with another path, so that none always follows the same neighbour.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            path, one = paths[name], figures[name]
            first, _ = await load(path.url, SINGLE_REQUESTS, 1)
            before = path.cpu_seconds()
            _, rate = await load(path.url, STREAMS * REQUESTS_PER_STREAM, STREAMS)
            one["first_byte_ms"].append(first * 1e3)
            one["requests_per_second"].append(rate)
            one["cpu_ms_per_request"].append(
                (path.cpu_seconds() - before) * 1e3 / (STREAMS * REQUESTS_PER_STREAM)
            )
    return figures


# --- processes ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Running:
    """A process of one path: the proxy, or the engine itself for the direct one."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Processor time of the process so far (user and system), all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*command: str, port: int) -> Iterator[Running]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended with {process.returncode}")
            time.sleep(0.05)
        yield Running(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def all_running(names: list[str]) -> Iterator[dict[str, Running]]:
    me = [sys.executable, str(Path(__file__).resolve())]
    with contextlib.ExitStack() as stack:
        port = free_port()
        engine = stack.enter_context(running(*me, "--role", "engine", "--port", str(port), port=port))
        paths = {}
        for name in names:
            port = free_port()
            if name == "direct":
                paths[name] = engine
                continue
            command = [*me, "--role", name, "--port", str(port), "--engine", engine.url]
            if name == "serve":
                command = [sys.executable, "-m", "tao", "serve", "--replica", engine.url, "--port", str(port)]
                command += ["--policy", "round-robin", "--log-level", "error"]
            paths[name] = stack.enter_context(running(*command, port=port))
        time.sleep(1.5)  # `tao serve` looks at its replica once a second
        yield paths


def report(figures: dict[str, dict[str, list[float]]], rounds: int) -> dict[str, Any]:
    medians = {
        name: {key: statistics.median(values) for key, values in one.items()} for name, one in figures.items()
    }
    base = medians.get("direct")
    slowest = medians.get("fastapi")
    print(
        f"medians of {rounds} alternating rounds; 1 stream: first byte; {STREAMS} streams: requests per second"
    )
    print(
        f"{'path':8} {'first byte ms':>14} {'+ direct':>9} {'requests/s':>11} {'x fastapi':>10} {'CPU ms/request':>15}"
    )
    for name, one in medians.items():
        added = one["first_byte_ms"] - base["first_byte_ms"] if base else float("nan")
        times = one["requests_per_second"] / slowest["requests_per_second"] if slowest else float("nan")
        rate = one["requests_per_second"]
        cpu = one["cpu_ms_per_request"]
        print(f"{name:8} {one['first_byte_ms']:14.2f} {added:9.2f} {rate:11.0f} {times:10.1f} {cpu:15.2f}")
    if base and slowest and "serve" in medians:
        added = medians["serve"]["first_byte_ms"] - base["first_byte_ms"]
        times = medians["serve"]["requests_per_second"] / slowest["requests_per_second"]
        print(
            f"target: serve first byte <= direct + 1.5 ms: {'met' if added <= 1.5 else 'MISSED'} (+{added:.2f} ms)"
        )
        print(
            f"target: serve at {STREAMS} streams >= 5 x fastapi: {'met' if times >= 5 else 'MISSED'} ({times:.1f} x)"
        )
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "rounds": rounds,
        "medians": medians,
        "rounds_of_each": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--paths", default=",".join(PATHS), help="comma-separated")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "http_path.json")
    parser.add_argument("--role", choices=("engine", "pass", "aiohttp", "fastapi"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "fastapi":
        run_fastapi(options.port, options.engine)
    elif options.role is not None:
        work = run_engine(options.port) if options.role == "engine" else None
        uvloop.run(work or run_transport(options.role, options.port, options.engine))
    else:
        with all_running(options.paths.split(",")) as paths:
            figures = uvloop.run(measure(paths, options.rounds))
        result = report(figures, options.rounds)
        options.json.parent.mkdir(exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
