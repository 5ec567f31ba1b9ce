"""Finding where a replica publishes its KV events: from the configuration, else by asking the replica itself.

It must not know what the streams say.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec

from tao.core.ids import ReplicaId
from tao.engines import KvSource, reachable, read_sources
from tao.engines.kv_sources import PATHS
from tao.gateway.probe import NOT_NOW
from tao.gateway.sources import check_address, replica_name
from tao.gateway.wire import lenient

ANSWER_BYTES_MAX = 1 << 20
OFF = "the engine publishes no KV events (--kv-events-config); credit rests on cached_tokens"


class KvSourceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one rank of a replica publishes, for engines that cannot be asked. `topic`: None accepts any."""

    replica: str
    endpoint: str
    replay_endpoint: str | None = None
    topic: str | None = None
    rank: int = 0


def configured_sources(entries: Iterable[KvSourceConfig]) -> dict[ReplicaId, tuple[KvSource, ...]]:
    """The entries by replica. Raises `ValueError` where an endpoint is none, or a replica's URL cannot be one."""
    sources: dict[ReplicaId, tuple[KvSource, ...]] = {}
    for entry in entries:
        check_address(entry.replica)
        if entry.rank < 0:
            raise ValueError(f"rank of {entry.replica!r} must be at least 0, not {entry.rank}")
        host = urlsplit(entry.replica).hostname or ""
        replay = reachable(entry.replay_endpoint, host) if entry.replay_endpoint else None
        source = KvSource(reachable(entry.endpoint, host), replay, entry.topic, entry.rank)
        replica = ReplicaId(replica_name(entry.replica))
        sources[replica] = (*sources.get(replica, ()), source)
    return sources


def sources_problem(
    entries: Iterable[KvSourceConfig], replicas: Sequence[str], *, others: bool
) -> str | None:
    """Whose entry is nobody's or there twice, or nothing. `others`: replicas may come that are not named yet."""
    known = {replica_name(url) for url in replicas}
    taken: set[tuple[str, int]] = set()
    for entry in entries:
        rank = replica_name(entry.replica), entry.rank
        if not others and rank[0] not in known:
            there_are = ", ".join(replicas)
            return f"[[kv_sources]] names {entry.replica!r}, which is no replica; there are: {there_are}"
        if rank in taken:
            return (
                f"[[kv_sources]] names {entry.replica!r} twice with rank {entry.rank}; "
                "give each entry of a replica its own rank, or leave one out"
            )
        taken.add(rank)
    return None


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
        url: Callable[[ReplicaId], str],
        configured: Mapping[ReplicaId, tuple[KvSource, ...]],
        timeout_seconds: float,
    ) -> None:
        self._url = url
        self._configured = configured
        self._timeout_seconds = timeout_seconds

    async def find(self, replica: ReplicaId) -> FoundSources:
        """See `SourceFinder.find`."""
        if replica in self._configured:
            return FoundSources(self._configured[replica])
        nowhere: FoundSources | None = None
        for path in PATHS:
            found = await self._asked(replica, path)
            if found.sources or not found.final:
                return found
            nowhere = nowhere or found  # the first page is the one that is meant for it
        assert nowhere is not None
        return nowhere

    async def _asked(self, replica: ReplicaId, path: str) -> FoundSources:
        """What one page says."""
        try:
            url = self._url(replica)
            status, body = await self._get(url + path)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return FoundSources(why=f"{path} does not answer: {error!s}".removesuffix(": "), final=False)
        except KeyError:
            return FoundSources(why="it has left")
        if status in NOT_NOW:
            return FoundSources(why=f"{path} answers {status}", final=False)
        if status != 200:
            return FoundSources(why=f"{OFF} ({path} answers {status})")
        try:
            document = msgspec.json.decode(body)
        except lenient.MALFORMED_JSON:
            return FoundSources(why=f"{path} answers no JSON")
        sources = read_sources(document, urlsplit(url).hostname or "")
        return FoundSources(sources, why=None if sources else OFF)

    async def _get(self, url: str) -> tuple[int, bytes]:
        """Status and body, over a connection of its own: those of the turns are left alone."""
        bound = aiohttp.ClientTimeout(total=self._timeout_seconds)
        async with (
            aiohttp.ClientSession(timeout=bound, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(url, allow_redirects=False) as reply,
        ):
            body = b""
            async for chunk in reply.content.iter_any():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    return reply.status, b""
            return reply.status, body
