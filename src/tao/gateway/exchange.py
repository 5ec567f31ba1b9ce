"""The two ends of a proxied request, as the gateway sees them: `Client` (who asks) and `Upstream` (who answers).

The transport behind them is chosen elsewhere (`tao.gateway.http`); nothing here knows HTTP servers or clients. A client
that hangs up cancels the task that serves it; whoever serves cleans up in `finally`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request as it came in: `target` is path and query as sent, `body` is complete and unchanged."""

    method: str
    path: str
    query: str
    target: str
    headers: RawHeaders
    body: bytes

    def for_plain_text(self) -> "ClientRequest":
        """The same request, asking for an answer without content coding."""
        plain = tuple(field for field in self.headers if field[0].lower() != b"accept-encoding")
        return replace(self, headers=plain)


class Client(Protocol):
    """The way back to the client."""

    @property
    def started(self) -> bool:
        """Whether status and headers have gone out."""

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Send status and headers."""

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body; waits when the client reads slowly."""

    async def finish(self) -> None:
        """The body is complete."""

    def abort(self) -> None:
        """Break the connection off, so that the client sees that the body is not complete."""


class UnreachableError(Exception):
    """No answer began: the connection failed, broke or timed out before the engine's headers. Nothing was sent on."""


class BrokenError(Exception):
    """The answer began and broke off."""


class Answer(Protocol):
    """An engine's answer whose headers are there."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> RawHeaders:
        """Names in lower case; without those that concern one connection only."""

    @property
    def complete(self) -> bool:
        """Whether all of the body is there, handed over or not."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, undecoded; raises `BrokenError`."""

    def close(self) -> None:
        """Let go at once; an answer that is not complete is thereby aborted on the engine."""


class Upstream(Protocol):
    """Sends requests to engines."""

    async def send(self, base_url: str, request: ClientRequest) -> Answer:
        """The engine's answer once its headers are there; raises `UnreachableError`."""

    def forget(self, base_url: str) -> None:
        """Nothing new goes there: keep nothing for it. What runs goes on to its end."""


async def whole_body(answer: Answer, bytes_max: int) -> bytes:
    """All of the body, and the answer closed; empty where it is more than `bytes_max`. Raises `BrokenError`."""
    try:
        body = b""
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > bytes_max:
                return b""
        return body
    finally:
        answer.close()
