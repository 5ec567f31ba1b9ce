"""`--ask-usage`: asks engines for the token counts that a client's stream would leave out, and keeps them from the client.

OpenAI streams tell usage only where the request says so; without it nobody learns what the cache served. Asked for by TAO,
the engine sends one chunk more at the end, with usage and without choices: that one is taken out again. Nothing else of
the request or the answer changes. It must not know sessions or decisions.
"""

import re
from dataclasses import replace

import msgspec

from tao.gateway.exchange import Client, ClientRequest, RawHeaders
from tao.gateway.replies import header, takes_events
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.lenient import MALFORMED_JSON
from tao.gateway.wire.requests import ParsedRequest

ASKED = b'"stream_options":{"include_usage":true},'
EVENT_BYTES_MAX = 1 << 20
"""A larger event is passed on without a look."""

_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_END_BYTES_MAX = 3  # of the end of an event that may lie in the chunk before


def asking_usage(
    request: ClientRequest, parsed: ParsedRequest, client: Client
) -> tuple[ClientRequest, Client]:
    """The request that asks for usage and the client that does not see it; both unchanged where there is no need.

    A client that says anything of `stream_options` itself gets what it says.
    """
    if parsed.dialect not in {Dialect.OPENAI_CHAT, Dialect.OPENAI_COMPLETIONS}:
        return request, client
    start = request.body.find(b"{") + 1
    plain = not header(request.headers, b"content-encoding")
    if not parsed.stream or parsed.opaque or "stream_options" in parsed.body or not (plain and start):
        return request, client
    body = request.body[:start] + ASKED + request.body[start:]
    return replace(request.for_plain_text(), body=body), _WithoutUsage(client)


class UsageStripper:
    """Takes the chunk with usage and without choices out of a stream of server-sent events, split anywhere."""

    def __init__(self) -> None:
        self._held = b""
        self._in_large_event = False

    def feed(self, chunk: bytes) -> bytes:
        """What of the stream may go on by now: whole events, and what is too large to be held."""
        data = self._held + chunk
        passed: list[bytes] = []
        start = 0
        for end in _END_OF_EVENT.finditer(data, max(0, len(self._held) - _END_BYTES_MAX)):
            event = data[start : end.end()]
            if self._in_large_event or not _is_usage_alone(event):
                passed.append(event)
            self._in_large_event = False
            start = end.end()
        if len(data) - start > EVENT_BYTES_MAX:
            self._in_large_event = True
        if self._in_large_event:  # all but what may be the beginning of its end
            cut = max(start, len(data) - _END_BYTES_MAX)
            passed.append(data[start:cut])
            start = cut
        self._held = data[start:]
        return b"".join(passed)

    def close(self) -> bytes:
        """What is left at the end of the stream."""
        held, self._held = self._held, b""
        return held


class _WithoutUsage:
    """A client behind a stripper. Only event streams in plain text are looked at."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stripper: UsageStripper | None = None

    @property
    def started(self) -> bool:
        return self._client.started

    async def start(self, status: int, headers: RawHeaders) -> None:
        if takes_events(headers):
            self._stripper = UsageStripper()
        await self._client.start(status, headers)

    async def send(self, chunk: bytes) -> None:
        passed = chunk if self._stripper is None else self._stripper.feed(chunk)
        if passed:
            await self._client.send(passed)

    async def finish(self) -> None:
        if self._stripper is not None and (left := self._stripper.close()):
            await self._client.send(left)
        await self._client.finish()

    def abort(self) -> None:
        self._client.abort()


def _is_usage_alone(event: bytes) -> bool:
    """Whether an event is the chunk that the engine sends only because it was asked: usage, and an empty `choices`."""
    if b'"usage"' not in event or not event.startswith(b"data:"):
        return False
    try:
        chunk = msgspec.json.decode(event[5:].strip())
    except MALFORMED_JSON:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
