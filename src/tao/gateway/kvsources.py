"""Finding where a replica publishes its KV events: from the configuration, else by asking the replica itself.

It must not know what the streams say.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from tao.core.ids import ReplicaId
from tao.engines import KvSource, read_sources
from tao.engines.kv_sources import PATH
from tao.gateway.exchange import BrokenError, ClientRequest, UnreachableError, Upstream

ANSWER_BYTES_MAX = 1 << 20
OFF = "the engine publishes no KV events (vLLM: --kv-events-config); credit rests on cached_tokens"


@dataclass(frozen=True, slots=True)
class FoundSources:
    """`why`: what keeps the replica from being watched. `final`: asking again would not help."""

    sources: tuple[KvSource, ...] = ()
    why: str | None = None
    final: bool = True


class SourceFinder(Protocol):
    """Knows, or asks, where a replica publishes."""

    async def find(self, replica: ReplicaId) -> FoundSources:
        """Never raises but for cancellation."""


class AskedSources:
    """The configured sources of a replica, else what its own page says. `url`: the address of a replica."""

    def __init__(
        self,
        upstream: Upstream,
        url: Callable[[ReplicaId], str],
        configured: Mapping[ReplicaId, tuple[KvSource, ...]],
        timeout_seconds: float,
    ) -> None:
        self._upstream = upstream
        self._url = url
        self._configured = configured
        self._timeout_seconds = timeout_seconds

    async def find(self, replica: ReplicaId) -> FoundSources:
        """See `SourceFinder.find`."""
        if replica in self._configured:
            return FoundSources(self._configured[replica])
        try:
            url = self._url(replica)
            async with asyncio.timeout(self._timeout_seconds):
                status, body = await self._get(url)
        except (TimeoutError, UnreachableError, BrokenError) as error:
            return FoundSources(why=f"{PATH} does not answer: {error!s}".removesuffix(": "), final=False)
        except KeyError:
            return FoundSources(why="it has left")
        if status != 200:
            return FoundSources(why=f"{OFF} ({PATH} answers {status})")
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return FoundSources(why=f"{PATH} answers no JSON")
        sources = read_sources(document, urlsplit(url).hostname or "")
        return FoundSources(sources, why=None if sources else OFF)

    async def _get(self, url: str) -> tuple[int, bytes]:
        request = ClientRequest("GET", PATH, "", PATH, ((b"accept", b"application/json"),), b"")
        reply = await self._upstream.send(url, request)
        try:
            body = b""
            async for chunk in reply.chunks():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    return reply.status, b""
            return reply.status, body
        finally:
            reply.close()
