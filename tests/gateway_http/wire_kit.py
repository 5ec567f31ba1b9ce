"""A scripted engine, a plain proxying handler and a raw client, all on loopback sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tao.gateway.config import Timeouts
from tao.gateway.exchange import BrokenError, Client, ClientRequest, UnreachableError
from tao.gateway.http.asgi import App
from tao.gateway.http.server import serving
from tao.gateway.http.upstream import HttpUpstream

Script = Callable[["EngineSide"], Awaitable[None]]
LIMIT = 64 * 1024


@dataclass(slots=True)
class EngineSide:
    """One connection as the engine sees it; a script answers the requests on it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    requests: list[bytes]

    async def request(self) -> bytes:
        """The next request, head and body as they came; empty when the other side has closed."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(fields.get(b"content-length", b"0")))
        self.requests.append(head + body)
        return head + body

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def closed(self) -> None:
        """Returns when the other side has closed or reset the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            return


@dataclass(slots=True)
class Engine:
    """A listening scripted engine."""

    url: str
    requests: list[bytes]
    connections: int = 0
    errors: list[BaseException] = field(default_factory=list)


@asynccontextmanager
async def engine(script: Script) -> AsyncIterator[Engine]:
    """Every connection runs `script`, and is closed when it returns."""
    state = Engine("", [])
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(EngineSide(reader, writer, state.connections, state.requests))
        except ConnectionError:
            pass
        except Exception as error:
            state.errors.append(error)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 20)
    host, port = server.sockets[0].getsockname()
    state.url = f"http://{host}:{port}"
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
    assert not state.errors, state.errors


@dataclass(slots=True)
class Proxy:
    """A handler that passes everything on to one engine, and tells what it went through."""

    upstream: HttpUpstream
    base_url: str
    address: tuple[str, int] = ("", 0)
    seen: list[ClientRequest] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None
    broken: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        await self.upstream.close()

    async def handle(self, request: ClientRequest, client: Client) -> None:
        self.seen.append(request)
        self.entered.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
            await self._pass(request, client)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _pass(self, request: ClientRequest, client: Client) -> None:
        try:
            answer = await self.upstream.send(self.base_url, request)
        except UnreachableError as error:
            text = str(error).encode()
            await client.start(502, [(b"content-length", b"%d" % len(text))])
            await client.send(text)
            await client.finish()
            return
        try:
            await client.start(answer.status, answer.headers)
            async for chunk in answer.chunks():
                await client.send(chunk)
            await client.finish()
        except BrokenError as error:
            self.broken.append(str(error))
            client.abort()
        finally:
            answer.close()


@asynccontextmanager
async def proxied(
    script: Script, *, timeouts: Timeouts | None = None, body_bytes_max: int = LIMIT
) -> AsyncIterator[tuple[Proxy, Engine]]:
    """A running proxy in front of a scripted engine."""
    async with engine(script) as behind:
        timeouts = timeouts or Timeouts()
        proxy = Proxy(HttpUpstream(timeouts), behind.url)
        stall_seconds = timeouts.client_stall_seconds
        app = App(proxy, body_bytes_max)
        async with serving(app, grace_seconds=1.0, stall_seconds=stall_seconds) as address:
            proxy.address = address
            yield proxy, behind


class RawClient:
    """A client's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), 10)

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        return await asyncio.wait_for(self.reader.read(), 10)

    def leave(self) -> None:
        """Hang up without a word."""
        self.writer.close()


@asynccontextmanager
async def raw_client(address: tuple[str, int]) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


def post(body: bytes = b"{}", *extra: bytes, target: bytes = b"/v1/x") -> bytes:
    """A request that asks for the connection to be closed after its answer."""
    lines = [b"POST " + target + b" HTTP/1.1", b"host: gateway", b"connection: close", *extra]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", body])


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


async def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """Send a request, read to the end."""
    async with raw_client(address) as client:
        await client.send(data)
        return await client.rest()
