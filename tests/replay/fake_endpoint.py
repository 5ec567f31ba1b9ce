"""A small OpenAI-compatible chat server on loopback for the tests of the replay: a real server, a toy engine.

A prompt's tokens are a fixed number of characters each; it remembers every prompt and reports the longest common
prefix as cached. Faults are a queue: each request takes the next one, if any; None is no fault.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

CHARS_PER_TOKEN = 3.0
Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    headers: dict[str, str]
    body: dict[str, object]
    raw: bytes
    prompt: str
    prompt_tokens: int


@dataclass
class FakeEndpoint:
    """State of one server; `seen` has every chat request in order, `released` what each release said after how many."""

    has_tokenize: bool = True
    reports_usage: bool = True
    streams: bool = True
    hold_seconds: str | None = None
    seen: list[Seen] = field(default_factory=list)
    released: list[tuple[object, int]] = field(default_factory=list)
    faults: deque[Fault | None] = field(default_factory=deque)
    url: str = ""
    arrival: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def received(self, requests: int) -> None:
        """Return when that many chat requests have come in."""
        async with self.arrival:
            await self.arrival.wait_for(lambda: len(self.seen) >= requests)

    def by_session(self, session_id: str) -> list[Seen]:
        return [request for request in self.seen if request.headers.get("X-Session-ID") == session_id]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        prompt = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])
        cached = max((_common(prompt, other.prompt) for other in self.seen), default=0)
        tokens = round(len(prompt) / CHARS_PER_TOKEN)
        self.seen.append(Seen(dict(request.headers), body, raw, prompt, tokens))
        async with self.arrival:
            self.arrival.notify_all()
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            return await fault(request)
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": body["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": int(cached / CHARS_PER_TOKEN)},
        }
        answer = "tok" * body["max_tokens"]
        if not self.streams:
            return web.json_response(
                {"choices": [{"message": {"content": answer}, "finish_reason": "length"}], "usage": usage}
            )
        response = await start_stream(request, self.hold_seconds)
        await response.write(b": keep-alive\n\n")
        await response.write(chunk({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        for start in range(0, len(answer), 300):
            await response.write(chunk({"choices": [{"delta": {"content": answer[start : start + 300]}}]}))
        await response.write(chunk({"choices": [{"delta": {}, "finish_reason": "length"}]}))
        if self.reports_usage:
            await response.write(chunk({"choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake-model"}, {"id": "other"}]})

    async def release(self, request: web.Request) -> web.Response:
        self.released.append((await request.json(), len(self.seen)))
        return web.json_response({"released": True})

    async def tokenize(self, request: web.Request) -> web.Response:
        if not self.has_tokenize:
            return web.json_response({"error": "no such route"}, status=404)
        prompt = (await request.json())["prompt"]
        return web.json_response({"count": round(len(prompt) / CHARS_PER_TOKEN)})


def chunk(event: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


async def start_stream(request: web.Request, hold_seconds: str | None = None) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream"}
    if hold_seconds is not None:
        headers["x-tao-hold-seconds"] = hold_seconds
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    return response


def _common(one: str, other: str) -> int:
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@asynccontextmanager
async def serving(endpoint: FakeEndpoint) -> AsyncIterator[FakeEndpoint]:
    """Run the server on a free port of loopback."""
    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    app.router.add_get("/v1/models", endpoint.models)
    app.router.add_post("/tokenize", endpoint.tokenize)
    app.router.add_post("/programs/release", endpoint.release)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    endpoint.url = f"http://127.0.0.1:{port}"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
