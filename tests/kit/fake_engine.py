"""A tiny engine that misbehaves on demand: real HTTP on loopback, vLLM's pages, and one behaviour per request.

A behaviour is a coroutine that answers one request; a `FakeEngine` takes them from a queue and falls back to a default.
It computes nothing: token counts are what the behaviour says. It must not know the gateway.
"""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

Behaviour = Callable[["Asked"], Awaitable[web.StreamResponse]]
MODEL = "m"


@dataclass(slots=True)
class Asked:
    """One request as the engine got it."""

    http: web.Request
    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True


@dataclass(slots=True)
class FakeEngine:
    """What the engine has seen, and what it does next. `now`: requests being answered at this moment."""

    capacity_tokens: int = 1 << 20
    default: Behaviour = field(default_factory=lambda: says("ok"))
    queue: deque[Behaviour] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    now: int = 0
    aborted: int = 0
    healthy: bool = True
    health_delay_seconds: float = 0.0  # of the health page alone
    has_pages: bool = True  # False: no /health and no /metrics, as a plain OpenAI-compatible server
    served_tokens: int = 0
    page: str | None = None  # instead of the metrics page
    pages: dict[str, tuple[int, bytes]] = field(
        default_factory=dict
    )  # instead of other pages: status and body by path
    late: dict[str, float] = field(default_factory=dict)  # seconds before the metrics or models page, by path
    cut: set[str] = field(default_factory=set)  # of these pages, those that break off in the middle
    kv_sources: list[dict[str, Any]] | None = None  # None: it does not know the page
    server_info: dict[str, Any] | None = None  # None: it does not know the page
    models: tuple[str, ...] = (MODEL,)
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def then(self, *behaviours: Behaviour) -> None:
        """The next requests meet these behaviours, one each."""
        self.queue.extend(behaviours)

    async def start(self) -> None:
        """Listen: on the port of before where it had one."""
        bound = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = bound.getsockname()[1]
        app = web.Application(client_max_size=256 << 20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/kv_event_sources", self._sources)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.SockSite(self._runner, bound).start()

    async def die(self) -> None:
        """As under kill -9: every connection is cut and the port is closed."""
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.health_delay_seconds)
        return web.Response(status=(200 if self.healthy else 503) if self.has_pages else 404)

    async def _metrics(self, asked: web.Request) -> web.StreamResponse:
        if asked.path in self.pages:
            return self._instead(asked)
        if not self.has_pages:
            return web.Response(status=404)
        return await self._hindered(
            asked, web.Response(text=self.page if self.page is not None else self.metrics())
        )

    async def _hindered(self, asked: web.Request, whole: web.Response) -> web.StreamResponse:
        """The page, late or in part where it has to be."""
        await asyncio.sleep(self.late.get(asked.path, 0.0))
        if asked.path not in self.cut:
            return whole
        assert isinstance(whole.body, bytes)
        half = web.StreamResponse(headers={"content-length": str(len(whole.body))})
        await half.prepare(asked)
        await half.write(whole.body[: len(whole.body) // 2])
        assert asked.transport is not None
        asked.transport.close()
        return half

    def metrics(self) -> str:
        """vLLM's page, as far as the gateway reads it."""
        blocks = self.capacity_tokens // 16
        return (
            f'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="{blocks}"}} 1.0\n'
            f'vllm:num_requests_running{{engine="0"}} {self.now}.0\n'
            'vllm:num_requests_waiting{engine="0"} 0.0\n'
            'vllm:kv_cache_usage_perc{engine="0"} 4.2e-05\n'
            'vllm:prefix_cache_queries_total{engine="0"} 0.0\n'
            'vllm:prefix_cache_hits_total{engine="0"} 0.0\n'
            'vllm:num_preemptions_total{engine="0"} 0.0\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {self.served_tokens}.0\n'
            'vllm:generation_tokens_total{engine="0"} 0.0\n'
        )

    async def _sources(self, asked: web.Request) -> web.Response:
        if asked.path in self.pages:
            return self._instead(asked)
        return web.Response(status=404) if self.kv_sources is None else web.json_response(self.kv_sources)

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.server_info is None else web.json_response(self.server_info)

    async def _models(self, asked: web.Request) -> web.StreamResponse:
        if asked.path in self.pages:
            return self._instead(asked)
        data = [{"id": model, "object": "model"} for model in self.models]
        return await self._hindered(asked, web.json_response({"object": "list", "data": data}))

    def _instead(self, asked: web.Request) -> web.Response:
        code, body = self.pages[asked.path]
        return web.Response(status=code, body=body, content_type="application/json")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            body = {}
        fields = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request, request.path, fields, raw, body if isinstance(body, dict) else {})
        self.asked.append(asked)
        behave = self.queue.popleft() if self.queue else self.default
        self.now += 1
        try:
            return await behave(asked)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.now -= 1


@asynccontextmanager
async def fake_engine(**settings: Any) -> AsyncIterator[FakeEngine]:
    """A running engine."""
    engine = FakeEngine(**settings)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.die()


# --- behaviours -------------------------------------------------------------------------------------------------------


def usage(prompt: int, output: int, cached: int | None = None) -> dict[str, Any]:
    """Token counts in the form of chat completions."""
    told: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
    if cached is not None:
        told["prompt_tokens_details"] = {"cached_tokens": cached}
    return told


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    document = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "model": MODEL,
        "choices": [choice],
        **more,
    }
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def says(
    text: str,
    *,
    counts: dict[str, Any] | None = None,
    gate: asyncio.Event | None = None,
    tools: list[str] | None = None,
) -> Behaviour:
    """A whole chat completion, or a stream of one piece a word. `gate`: it waits after the first piece (streams) or
    before the answer.
    """
    counts = usage(100, 10) if counts is None else counts

    async def behave(asked: Asked) -> web.StreamResponse:
        calls = [
            {
                "index": number,
                "id": f"call{number}",
                "type": "function",
                "function": {"name": name, "arguments": "{}"},
            }
            for number, name in enumerate(tools or [])
        ]
        finish = "tool_calls" if calls else "stop"
        if not asked.stream:
            if gate is not None:
                await gate.wait()
            message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            document = {"id": "c1", "object": "chat.completion", "model": MODEL, "choices": [choice]}
            return web.json_response(document | ({"usage": counts} if counts else {}))
        response = await begin_stream(asked)
        for number, word in enumerate(text.split(" ")):
            await response.write(event({"role": "assistant", "content": word + " "}))
            if gate is not None and number == 0:
                await gate.wait()
        if calls:
            await response.write(event({"tool_calls": calls}))
        await response.write(event({}, finish, **({"usage": counts} if counts else {})))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    return behave


async def begin_stream(asked: Asked) -> web.StreamResponse:
    """Status and headers of an event stream."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(asked.http)
    return response


def status(code: int, body: bytes = b'{"error": {"message": "no"}}', **headers: str) -> Behaviour:
    """An error page."""

    async def behave(_: Asked) -> web.StreamResponse:
        return web.Response(status=code, body=body, content_type="application/json", headers=headers)

    return behave


def drops(asked_event: asyncio.Event | None = None) -> Behaviour:
    """The connection is cut before any byte of an answer."""

    async def behave(asked: Asked) -> web.StreamResponse:
        if asked_event is not None:
            asked_event.set()
        assert asked.http.transport is not None
        asked.http.transport.abort()
        return web.Response()

    return behave


def cuts(*pieces: bytes) -> Behaviour:
    """An event stream that is cut after these pieces."""

    async def behave(asked: Asked) -> web.StreamResponse:
        response = await begin_stream(asked)
        for piece in pieces:
            await response.write(piece)
        assert asked.http.transport is not None
        asked.http.transport.close()  # what is written goes out, the end of the body does not
        return response

    return behave


def silent(until: asyncio.Event, then: Behaviour | None = None) -> Behaviour:
    """Nothing, not even headers, until the event."""

    async def behave(asked: Asked) -> web.StreamResponse:
        await until.wait()
        return await (then or says("late"))(asked)

    return behave
