"""The server side of the data path: an ASGI application in front of one handler.

Reads a request within its size limit, hands it over with the way back to the client, and cancels the handler as soon
as the client hangs up. Raw ASGI: nothing between the server's protocol and the gateway. It must not know sessions or
scheduling; it knows dialects only to refuse a too large body in the client's own form.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import structlog

from tao.gateway.exchange import Client, ClientRequest, RawHeaders
from tao.gateway.http.hops import Hops
from tao.gateway.wire.dialects import Dialect, dialect_of
from tao.gateway.wire.refusals import Problem, Refusal, refusal

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_SECONDS = 60.0
"""The longest silence while a client sends its body."""
RESET_SECONDS = 0.05
"""A connection that was reset refuses what is written to it this long, at most, before it is told to be gone."""
DISCARD_BYTES_MAX = 256 * 1024 * 1024
"""So much of a too large body is read and thrown away, so that the client gets to read the refusal."""


class Handler(Protocol):
    """Answers requests, `tao.gateway.gateway.Gateway` for one."""

    async def start(self) -> None:
        """Called before the first request."""

    async def close(self) -> None:
        """Called after the last one."""

    async def handle(self, request: ClientRequest, client: Client) -> None:
        """Answer one request. Cancelled when the client hangs up."""


class App:
    """The ASGI application; its lifespan starts and closes the handler. `hops` tells what goes round in circles."""

    def __init__(self, handler: Handler, body_bytes_max: int, hops: Hops | None = None) -> None:
        self._handler = handler
        self._hops = hops
        self._body_bytes_max = body_bytes_max
        self._log = structlog.get_logger("tao.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": "TAO speaks plain HTTP only"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = AsgiClient(send)
        try:
            body = await _read_body(scope, receive, self._body_bytes_max)
        except _ClientLeftError:
            return
        except _RefusedError as refused:
            await client.refuse(refused.answer)
            return
        circle = None if self._hops is None else self._hops.refusal(scope["headers"])
        if circle is not None:
            self._log.error("a request goes round in circles", path=scope["path"], why=circle)
            await client.refuse(refusal(_dialect(scope), Problem.MALFORMED, circle))
            return
        task = asyncio.current_task()
        assert task is not None
        watcher = asyncio.get_running_loop().create_task(_watch(receive, client, task))
        request = _request(scope, body)
        try:
            await self._handler.handle(request, client)
        except asyncio.CancelledError:
            if not client.left:
                raise
            # The client hung up and the handler has cleaned up: the server's task ends in the ordinary way.
            task.uncancel()
        except Exception as error:
            if isinstance(error, RuntimeError) and await _hung_up(watcher, client):
                self._log.debug("the client was gone", path=request.path, error=str(error))
                return
            self._log.exception("a request failed", path=request.path)
            if not client.started:
                text = "TAO failed to serve this request; its log says why"
                await client.refuse(refusal(_dialect(scope), Problem.INTERNAL, text))
        finally:
            watcher.cancel()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._handler.start()
        except Exception as error:
            self._log.exception("the gateway did not start")
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._handler.close()
        await send({"type": "lifespan.shutdown.complete"})


class AsgiClient:
    """Implements `tao.gateway.exchange.Client` over an ASGI `send`."""

    __slots__ = ("_aborted", "_send", "finished", "left", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.finished = False
        self.left = False
        self._aborted = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, chunk: bytes) -> None:
        if not self._aborted:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        if not self._aborted:
            self.finished = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        # A server closes the connection of a response that its application leaves incomplete; nothing after this
        # completes it.
        self._aborted = True

    async def refuse(self, answer: Refusal) -> None:
        """Send a complete answer and close the connection: the rest of the request is of no use."""
        await self.start(answer.status, (*answer.headers, (b"connection", b"close")))
        await self.send(answer.body)
        await self.finish()


class _ClientLeftError(Exception):
    """The client hung up while it sent its body."""


class _RefusedError(Exception):
    """The body is not wanted."""

    def __init__(self, answer: Refusal) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _request(scope: Scope, body: bytes) -> ClientRequest:
    root: str = scope.get("root_path", "")
    path: str = scope["path"].removeprefix(root)
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    target = raw.removeprefix(root.encode("utf-8")).decode("latin-1")
    query = scope.get("query_string", b"").decode("latin-1")
    return ClientRequest(
        method=scope["method"],
        path=path,
        query=query,
        target=f"{target}?{query}" if query else target,
        headers=scope["headers"],
        body=body,
    )


async def _read_body(scope: Scope, receive: Receive, body_bytes_max: int) -> bytes:
    if _expects_continue(scope) and _declared_bytes(scope) > body_bytes_max:
        raise _too_large(scope, body_bytes_max)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await _next_piece(scope, receive)
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size <= body_bytes_max:
            pieces.append(piece)
        else:
            pieces.clear()
        if not message.get("more_body", False) or size > body_bytes_max + DISCARD_BYTES_MAX:
            break
    if size > body_bytes_max:
        raise _too_large(scope, body_bytes_max)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _next_piece(scope: Scope, receive: Receive) -> Message:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            message = await receive()
    except TimeoutError:
        text = f"nothing of the request body came for {BODY_SECONDS:g} s"
        raise _RefusedError(refusal(_dialect(scope), Problem.MALFORMED, text)) from None
    if message["type"] == "http.disconnect":
        raise _ClientLeftError
    return message


def _too_large(scope: Scope, body_bytes_max: int) -> _RefusedError:
    text = f"the request body exceeds {body_bytes_max} bytes, the limit that TAO was given (limits.body_bytes_max)"
    return _RefusedError(refusal(_dialect(scope), Problem.TOO_LARGE, text))


def _dialect(scope: Scope) -> Dialect:
    return dialect_of(scope["method"], scope["path"])


def _declared_bytes(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(value) if value.isdigit() and len(value) < 20 else 0


def _expects_continue(scope: Scope) -> bool:
    return any(name == b"expect" for name, _ in scope["headers"])


async def _watch(receive: Receive, client: AsgiClient, handler: asyncio.Task[Any]) -> None:
    """Cancel the handler when the client hangs up before its answer is complete."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not client.finished:
        client.left = True
        handler.cancel()


async def _hung_up(watcher: asyncio.Task[None], client: AsgiClient) -> bool:
    """Whether a handler failed because its client was gone: uvloop raises at a write just before a reset is told."""
    client.finished = True  # nothing is left to cancel
    await asyncio.wait({watcher}, timeout=RESET_SECONDS)
    return watcher.done()
