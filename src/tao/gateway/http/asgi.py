"""The ASGI application in front of the gateway.

It reads a body within its bound, serves the request in a task of its own, and cancels that task when the client hangs up,
whatever phase it is in. Sending waits for a slow reader, so nothing piles up here.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import structlog

from tao.gateway.exchange import Client, ClientRequest, RawHeaders
from tao.gateway.http.headers import end_to_end
from tao.gateway.wire.dialects import dialect_of
from tao.gateway.wire.refusals import Problem, refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Handler(Protocol):
    """Whoever serves requests: the gateway."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def handle(self, request: ClientRequest, client: Client) -> None: ...


class TooLargeError(Exception):
    """The body exceeds the bound."""


class ClientGoneError(Exception):
    """The client hung up while it was still sending."""


class AsgiClient:
    """Implements `tao.gateway.exchange.Client`."""

    __slots__ = ("_cut", "_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._cut = False
        self.started = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(end_to_end(headers))}
        )

    async def send(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        self._cut = True

    @property
    def cut(self) -> bool:
        """Whether the answer shall end visibly incomplete."""
        return self._cut


class AnswerCutError(RuntimeError):
    """Raised into the server so that it closes the connection without a proper end of the body."""


class App:
    """The application; `lifespan` starts and closes the handler."""

    def __init__(self, handler: Handler, body_bytes_max: int) -> None:
        self._handler = handler
        self._body_bytes_max = body_bytes_max
        self._log = structlog.get_logger("tao.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._handler.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._handler.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = AsgiClient(send)
        try:
            body = await self._body(scope, receive)
        except ClientGoneError:
            return
        except TooLargeError:
            await self._refuse_too_large(scope, client)
            return
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        target = raw_path + (b"?" + query if query else b"")
        request = ClientRequest(
            scope["method"],
            scope["path"],
            query.decode("latin-1"),
            target.decode("latin-1"),
            scope["headers"],
            body,
        )
        await self._serve(request, client, receive)
        if client.cut:
            raise AnswerCutError("the engine's answer broke off")

    async def _serve(self, request: ClientRequest, client: AsgiClient, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._handler.handle(request, client))
        gone = loop.create_task(_until_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            if not work.cancelled():
                raise
        except Exception:
            self._log.exception("a request failed", path=request.path)
            if client.started:
                client.abort()
            else:
                answer = refusal(
                    dialect_of(request.method, request.path), Problem.INTERNAL, "TAO failed; see its log"
                )
                await client.start(answer.status, answer.headers)
                await client.send(answer.body)
                await client.finish()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._body_bytes_max:
                raise TooLargeError
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._body_bytes_max:
                raise TooLargeError
            pieces.append(piece)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _refuse_too_large(self, scope: Scope, client: AsgiClient) -> None:
        message = f"the request body is larger than {self._body_bytes_max} bytes ([limits] body_bytes_max)"
        answer = refusal(dialect_of(scope["method"], scope["path"]), Problem.TOO_LARGE, message)
        await client.start(answer.status, (*answer.headers, (b"connection", b"close")))
        await client.send(answer.body)
        await client.finish()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
