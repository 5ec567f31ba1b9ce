"""Running an ASGI application on uvicorn: bound to an address, without signal handlers, stopped by whoever started it.

uvicorn parses requests with llhttp in strict mode, which refuses contradicting framing (Content-Length beside
Transfer-Encoding, several lengths). What it lacks is added here: bounds on the size of a request's head, on the time it may
take, and on the time that a client may leave its answer unread; and requests that offer another protocol (h2c, as Java's
client does) are served as plain ones. It must not know what the application does.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tao.gateway.http.gathered import GatheredWrites

HEAD_BYTES_MAX = 256 * 1024
HEAD_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 75
STALL_SECONDS = 300.0

_TOO_LARGE = b"the request's headers exceed %d bytes" % HEAD_BYTES_MAX


class BoundedHeadProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on a request's head, and deaf to offers of other protocols."""

    stall_seconds = STALL_SECONDS
    """How long a client may leave what was sent to it unread."""

    _stalled: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _head_due: float | None = None
    _received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheredWrites(transport, self.loop))
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        self._received = data
        super().data_received(data)
        self._received = b""
        if not self._in_head or self.transport.is_closing():
            return
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._expect_head()

    def pause_writing(self) -> None:
        """The client does not read: an answer waits for it, and a replica for the answer, but not for ever."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._read_again()
        super().connection_lost(exc)

    def _read_again(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._head_due = None
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        """Asked where a request offers another protocol: yes, so that `handle_websocket_upgrade` gets it."""
        return True

    def handle_websocket_upgrade(self) -> None:
        """Read the request again without its offer, which a server may ignore (RFC 9110, section 7.8).

        llhttp takes the body of such a request for the first bytes of the other protocol, and stops in front of it.
        """
        stopped = sys.exception()
        assert isinstance(stopped, httptools.HttpParserUpgrade)
        if self.scope["method"] == "CONNECT":
            self.send_400_response("TAO is no tunnel.")
            return
        fields = (b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        line = b"%b %b HTTP/%b\r\n" % (
            self.scope["method"].encode("ascii"),
            self.url,
            self.scope["http_version"].encode("ascii"),
        )
        rest = self._received[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.data_received(b"".join((line, *fields, b"\r\n", rest)))

    def _expect_head(self) -> None:
        """Close the connection where no head is complete in time; uvicorn's own timer starts after an answer."""
        if self._answering:
            return
        self._unset_keepalive_if_required()
        seconds: float = KEEP_ALIVE_SECONDS
        if self._head_bytes:  # counted from the first of them, however slowly the others come
            now = self.loop.time()
            self._head_due = self._head_due or now + HEAD_SECONDS
            seconds = max(0.0, self._head_due - now)
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _refuse_head(self) -> None:
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
        )
        self.transport.close()


def server_config(
    app: Any, grace_seconds: float = 5.0, stall_seconds: float = STALL_SECONDS
) -> uvicorn.Config:
    """uvicorn as the gateway runs it: answers carry the engine's own Server and Date, nothing is logged twice.

    A shutdown gives running requests `grace_seconds` and then cancels them. A client that does not read for
    `stall_seconds` is cut off.
    """
    protocol = type("BoundedProtocol", (BoundedHeadProtocol,), {"stall_seconds": stall_seconds})
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, _ExpectedCuts) for known in logger.filters):
        logger.addFilter(_ExpectedCuts())
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        server_header=False,
        date_header=False,
        access_log=False,
        proxy_headers=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
    )


class _Server(uvicorn.Server):
    """uvicorn's server, telling when it has started and leaving signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn's way to say that the application refused to start; here the caller decides what that means.
            raise RuntimeError("the application did not start; its log says why") from None
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    app: Any,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    grace_seconds: float = 5.0,
    stall_seconds: float = STALL_SECONDS,
) -> AsyncIterator[tuple[str, int]]:
    """Serve `app` and yield the address it listens on; port 0 picks a free one.

    Leaving the block stops accepting, gives running requests `grace_seconds` and then cancels them. Raises `OSError`
    where the address cannot be used.
    """
    listening = _listen(host, port)
    config = server_config(app, grace_seconds, stall_seconds)
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    started = asyncio.create_task(server.up.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        address = listening.getsockname()
        yield address[0], address[1]
    finally:
        started.cancel()
        server.should_exit = True
        await asyncio.wait({running})
        listening.close()
    running.result()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    listening.setblocking(False)
    return listening


class _ExpectedCuts(logging.Filter):
    """An answer cut on purpose is no error of the application, though uvicorn logs it as one."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing response."
