"""The client side of the data path: requests to engines over pooled connections, with bounds on every wait.

Implements `tao.gateway.exchange.Upstream`. A pooled connection that the engine closed in the same moment fails before
any byte of an answer; then the request goes out once more, on a fresh connection. That is the only retry made here:
whether a turn goes elsewhere is decided above. It must not know sessions or dialects.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tao.engines.keepalive import DEAD_SECONDS, PROBE_AFTER_SECONDS, PROBE_PERIOD_SECONDS, PROBES
from tao.gateway.config import Timeouts
from tao.gateway.exchange import ClientRequest, RawHeaders, UnreachableError
from tao.gateway.http.connection import EngineConnection, Exchange
from tao.gateway.http.headers import request_head
from tao.gateway.http.hops import Hops
from tao.gateway.sources import in_url

STALE_SECONDS = 1.0
"""A pooled connection that fails later than this after the request has not been closed by chance."""
IDLE_SECONDS = 4.0
"""How long an unused connection is kept; engines on uvicorn close theirs after 5 s."""
IDLE_CONNECTIONS_MAX = 256

_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", PROBE_AFTER_SECONDS),
    (socket.IPPROTO_TCP, "TCP_KEEPALIVE", PROBE_AFTER_SECONDS),  # the same on macOS
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", PROBE_PERIOD_SECONDS),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", PROBES),
    # While a request is not acknowledged no probe goes out, so that has a bound of its own.
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_SECONDS * 1000),
)


@dataclass(slots=True)
class _Origin:
    """An engine's address and its unused connections, the latest last."""

    host: str
    port: int
    authority: bytes
    prefix: str
    tls: ssl.SSLContext | None
    forgotten: bool = False
    idle: deque[EngineConnection] = field(default_factory=deque)


class HttpUpstream:
    """Sends requests to engines. Used from one event loop; `close` when done. `hops` marks what is sent."""

    def __init__(self, timeouts: Timeouts, hops: Hops | None = None) -> None:
        self._timeouts = timeouts
        self._hops = hops
        self._origins: dict[str, _Origin] = {}

    async def send(self, base_url: str, request: ClientRequest) -> "HttpAnswer":
        """See `Upstream.send`."""
        origin = self._origin(base_url)
        connection = self._reuse(origin)
        if connection is not None:
            sent_at = asyncio.get_running_loop().time()
            try:
                return await self._exchange(origin, connection, request)
            except _UnansweredError:
                if asyncio.get_running_loop().time() - sent_at > STALE_SECONDS:
                    raise
        return await self._exchange(origin, await self._connect(origin), request)

    def forget(self, base_url: str) -> None:
        """See `Upstream.forget`."""
        origin = self._origins.pop(base_url, None)
        if origin is not None:
            origin.forgotten = True
            _cut_unused(origin)

    async def close(self) -> None:
        """Cut all unused connections."""
        for origin in self._origins.values():
            _cut_unused(origin)

    def _origin(self, base_url: str) -> _Origin:
        origin = self._origins.get(base_url)
        if origin is None:
            origin = self._origins[base_url] = _parse_origin(base_url)
        return origin

    def _reuse(self, origin: _Origin) -> EngineConnection | None:
        """The connection that was used last; older ones that idled for too long are closed on the way."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while origin.idle and (origin.idle[0].idle_since < oldest or not origin.idle[0].usable):
            origin.idle.popleft().abort()
        while origin.idle:
            connection = origin.idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self, origin: _Origin) -> EngineConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeouts.connect_seconds):
                transport, connection = await loop.create_connection(
                    EngineConnection, origin.host, origin.port, ssl=origin.tls
                )
        except TimeoutError:
            bound = self._timeouts.connect_seconds
            raise UnreachableError(f"no connection to {_shown(origin)} within {bound:g} s") from None
        except OSError as error:
            raise UnreachableError(f"cannot connect to {_shown(origin)}: {error.strerror or error}") from None
        _notice_death(transport.get_extra_info("socket"))
        return connection

    async def _exchange(
        self, origin: _Origin, connection: EngineConnection, request: ClientRequest
    ) -> "HttpAnswer":
        target = origin.prefix + request.target
        headers = request.headers if self._hops is None else self._hops.marked(request.headers)
        head = request_head(request.method, target, origin.authority, headers, len(request.body))
        exchange = connection.begin(head, request.body, bodiless=request.method == "HEAD")
        patience = _Patience(exchange, self._timeouts, origin)
        try:
            await exchange.head()
        except BaseException as error:
            patience.end()
            exchange.close()
            if isinstance(error, UnreachableError) and exchange.untouched and not patience.exhausted:
                raise _UnansweredError(str(error)) from None
            raise
        return HttpAnswer(exchange, self, origin, connection, patience)

    def keep(self, origin: _Origin, connection: EngineConnection) -> None:
        """An exchange is over; its connection may serve another one."""
        if connection.usable and not origin.forgotten and len(origin.idle) < IDLE_CONNECTIONS_MAX:
            origin.idle.append(connection)
        else:
            connection.abort()


class _UnansweredError(UnreachableError):
    """The connection failed before any byte of an answer."""


class _Patience:
    """Bounds one exchange: the time until its headers are there, and any silence after that, by a single timer."""

    __slots__ = ("_begun_at", "_exchange", "_loop", "_origin", "_timeouts", "_timer", "exhausted")

    def __init__(self, exchange: Exchange, timeouts: Timeouts, origin: _Origin) -> None:
        self._exchange = exchange
        self._timeouts = timeouts
        self._origin = origin
        self._loop = exchange.loop
        self._begun_at = exchange.last_byte_at
        self.exhausted = False
        self._timer = self._loop.call_later(
            min(timeouts.first_byte_seconds, timeouts.silence_seconds), self._look
        )

    def end(self) -> None:
        """There is nothing to wait for any more."""
        self._timer.cancel()

    def _look(self) -> None:
        exchange, timeouts = self._exchange, self._timeouts
        now = self._loop.time()
        if not exchange.head_done:
            due = self._begun_at + timeouts.first_byte_seconds
            reason = f"{_shown(self._origin)} sent no headers within {timeouts.first_byte_seconds:g} s"
        else:
            due = (now if exchange.paused else exchange.last_byte_at) + timeouts.silence_seconds
            reason = f"the engine sent nothing for {timeouts.silence_seconds:g} s"
        if due > now:
            self._timer = self._loop.call_later(due - now, self._look)
        else:
            self.exhausted = True
            exchange.fail(reason)
            exchange.wake()


class HttpAnswer:
    """Implements `tao.gateway.exchange.Answer`: an exchange with a bound on silence, its connection from the pool."""

    __slots__ = ("_connection", "_exchange", "_kept", "_origin", "_patience", "_upstream")

    def __init__(
        self,
        exchange: Exchange,
        upstream: HttpUpstream,
        origin: _Origin,
        connection: EngineConnection,
        patience: _Patience,
    ) -> None:
        self._exchange = exchange
        self._upstream = upstream
        self._origin = origin
        self._connection = connection
        self._patience = patience
        self._kept = False

    @property
    def status(self) -> int:
        return self._exchange.status

    @property
    def headers(self) -> RawHeaders:
        return self._exchange.headers

    @property
    def complete(self) -> bool:
        return self._exchange.complete

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> "HttpAnswer":
        return self

    async def __anext__(self) -> bytes:
        piece = await self._exchange.next_piece()
        if not piece:
            self.close()
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        if self._kept:
            return
        self._kept = True
        self._patience.end()
        self._exchange.close()
        self._upstream.keep(self._origin, self._connection)


def _cut_unused(origin: _Origin) -> None:
    while origin.idle:
        origin.idle.pop().abort()


def _notice_death(connected: socket.socket) -> None:
    """Have the system end a connection whose peer is dead without having closed it: no power, no network."""
    for level, name, value in _SOCKET_OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):  # known to Python and not to the system
                connected.setsockopt(level, option, value)


def _parse_origin(base_url: str) -> _Origin:
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{base_url!r} is not an http(s) URL")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    host = in_url(parts.hostname)
    authority = host if parts.port is None else f"{host}:{port}"
    return _Origin(parts.hostname, port, authority.encode("ascii"), parts.path.rstrip("/"), tls)


def _shown(origin: _Origin) -> str:
    return f"{origin.host}:{origin.port}"
