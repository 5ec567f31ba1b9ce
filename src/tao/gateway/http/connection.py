"""One connection to an engine: a request out, an answer in, byte for byte, with bounded buffering.

The answer is parsed by llhttp (httptools), strictly: what is not plain HTTP/1.1 ends the exchange. A body is handed over
as it arrives; when it is read slowly the socket is not read either. It must not know pools, retries or time-outs.
"""

import asyncio
from collections import deque
from typing import cast

import httptools

from tao.gateway.exchange import BrokenError, UnreachableError
from tao.gateway.http.headers import end_to_end

HEAD_BYTES_MAX = 256 * 1024
BUFFER_HIGH_BYTES = 256 * 1024
JOINED_BYTES_MAX = 64 * 1024
"""A body so small is copied behind its head: cheaper than to write both."""

_NO_BODY = frozenset({204, 304})


class EngineConnection(asyncio.Protocol):
    """A connection that serves one exchange after another. `idle` while it may take the next one."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.parser: httptools.HttpResponseParser | None = None
        self._lost = False
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._exchange is None and not self._lost and not self._closing

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def begin(self, head: bytes, body: bytes, *, bodiless: bool) -> "Exchange":
        """Send a request. `bodiless`: the answer has no body whatever its headers say (HEAD)."""
        assert self._transport is not None
        assert self._exchange is None
        self._exchange = Exchange(self, bodiless=bodiless)
        self.parser = httptools.HttpResponseParser(self._exchange)
        if len(body) <= JOINED_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return self._exchange

    def release(self, *, reusable: bool) -> None:
        """The exchange is over; a connection in doubt is cut at once, which also stops the engine's work."""
        self._exchange = None
        self.parser = None
        if self._transport is None or self._lost:
            return
        if reusable and not self._transport.get_write_buffer_size():
            self._transport.resume_reading()
            self.idle_since = self.loop.time()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading from the socket."""
        if not self._closing and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if not self._closing and self._transport is not None:
            self._transport.resume_reading()

    # --- called by the transport ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so there is nothing to assert.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self._exchange is None:
            # Bytes that no request asked for: nothing after them could be trusted.
            self.abort()
            return
        exchange = self._exchange
        if not exchange.received(len(data)):
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            exchange.fail("the engine tried to switch protocols")
        except httptools.HttpParserError as error:
            exchange.fail(f"the engine's answer is no valid HTTP: {error}")
        exchange.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._exchange is not None:
            self._exchange.ended(exc)


class Exchange:
    """One request's answer while it arrives."""

    def __init__(self, connection: EngineConnection, *, bodiless: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._connection = connection
        self._bodiless = bodiless
        self._raw: list[tuple[bytes, bytes]] = []
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._paused = False
        self._received_bytes = 0
        self._head_done = False
        self._body_done = False
        self._error: str | None = None
        self._released = False
        self._keep_alive = False
        self._framed = True
        self._waiter: asyncio.Future[None] | None = None
        self.loop = connection.loop
        self.last_byte_at = self.loop.time()

    @property
    def head_done(self) -> bool:
        """Whether status and headers are there."""
        return self._head_done

    @property
    def complete(self) -> bool:
        """Whether all of the body has arrived."""
        return self._body_done

    @property
    def untouched(self) -> bool:
        """Whether not a single byte of an answer has come."""
        return not self._received_bytes

    @property
    def paused(self) -> bool:
        """Whether the engine is held back because the client reads slowly."""
        return self._paused

    async def head(self) -> None:
        """Wait for status and headers; raises `UnreachableError`."""
        while self._error is None:
            if self._head_done:
                return
            await self._wait()
        raise UnreachableError(self._error)

    async def next_piece(self) -> bytes:
        """What has arrived of the body since the last call, waiting for some; empty at the end. Raises `BrokenError`."""
        self._resume_if_paused()
        while not self._pieces:
            if self._body_done:
                return b""
            if self._error is not None:
                raise BrokenError(self._error)
            await self._wait()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered_bytes = 0
        return piece

    def close(self) -> None:
        """Over: keep the connection where the answer was complete and clean, else cut it."""
        if self._released:
            return
        self._released = True
        self._connection.release(reusable=self._body_done and self._keep_alive and self._error is None)
        self.fail("the exchange was closed")
        self.wake()

    # --- called by the connection ---------------------------------------------------------------------

    def received(self, size: int) -> bool:
        """So many more bytes came from the engine; False where they are not wanted any more."""
        self._received_bytes += size
        self.last_byte_at = self.loop.time()
        if not self._head_done and self._received_bytes > HEAD_BYTES_MAX:
            self.fail(f"the engine's headers exceed {HEAD_BYTES_MAX} bytes")
            self.wake()
        return self._error is None

    def ended(self, exc: Exception | None) -> None:
        """The connection is gone: fine where it ends the body, a failure elsewhere."""
        if self._head_done and not self._framed and exc is None and self._error is None:
            self._body_done = True
        elif not self._body_done:
            detail = f": {exc}" if exc is not None else ""
            where = "in the middle of the body" if self._head_done else "before the headers were complete"
            self.fail(f"the engine closed the connection {where}{detail}")
        self._keep_alive = False
        self.wake()

    def fail(self, reason: str) -> None:
        """The answer cannot be completed; the first reason counts."""
        if self._error is None and not self._body_done:
            self._error = reason

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- called by the parser -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A second answer to one request must not reach the next one."""
        if self._body_done:
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which is dropped."""
        if not self._head_done:
            self._raw.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Status and headers are there; interim answers (1xx) are skipped."""
        if self._head_done:
            self._keep_alive = False
            return
        parser = self._connection.parser
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:
            self._raw = []
            return
        self.status = status
        self.headers = end_to_end(self._raw)
        self._head_done = True
        names = {name for name, _ in self._raw}
        self._framed = (
            self._bodiless
            or status in _NO_BODY
            or b"content-length" in names
            or b"transfer-encoding" in names
        )
        self._keep_alive = self._framed and not self._bodiless and parser.should_keep_alive()
        self._body_done = self._bodiless

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._body_done or self._released:
            return
        self._pieces.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > BUFFER_HIGH_BYTES and not self._paused:
            self._paused = True
            self._connection.pause()

    def on_message_complete(self) -> None:
        """The end of the answer, or of an interim one."""
        if self._head_done:
            self._body_done = True

    def _resume_if_paused(self) -> None:
        if self._paused and not self._pieces:
            self._paused = False
            self.last_byte_at = self.loop.time()
            self._connection.resume()

    async def _wait(self) -> None:
        self._waiter = self.loop.create_future()
        await self._waiter
