"""Looking at a replica over HTTP: is it healthy, and what does its metrics page tell?

A replica without a metrics page is no dead one, nor is one whose health page alone is late: what it does not tell becomes a
problem that is named. It must not know what anybody concludes from a sighting.
"""

import aiohttp
import msgspec

from tao.engines import read_slots, read_status, slots_paths
from tao.gateway.healthpages import HealthPages
from tao.gateway.member import Sighting
from tao.gateway.wire import lenient

PAGE_BYTES_MAX = 16 << 20
LATE = "its health page is late, its other pages are not: the engine is busy"


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class HttpProbe:
    """Implements `tao.gateway.fleet.Probe`. Make it inside a running event loop; `close` when done."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )
        self._health = HealthPages(self._health_status)

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting:
        bound = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            status = await self._health.status(base_url, timeout_seconds)
            if status not in {200, None}:
                return Sighting(False, f"its health page answers {status}")
            if status is None:  # excused only by pages that come at once
                bound = aiohttp.ClientTimeout(total=timeout_seconds / 2)
            page, problems = await self._page(f"{base_url}/metrics", bound)
            models = await self._models(f"{base_url}/v1/models", bound)
        except aiohttp.ClientConnectorError as error:
            return Sighting(False, str(error), refused=isinstance(error.os_error, ConnectionRefusedError))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Sighting(False, f"{type(error).__name__}: {error}".removesuffix(": "))
        if status is None:
            problems = (*problems, LATE)
        told = read_status(page)
        return Sighting(
            True,
            "healthy",
            capacity_tokens=told.capacity_tokens,
            served=told.served,
            started_at=told.started_at,
            engine=told.engine,
            models=models,
            running=told.running,
            waiting=told.waiting,
            kv_usage=told.kv_usage,
            ranks=max(1, len(told.ranks)),
            problems=(*problems, *told.problems),
        )

    async def slots(self, base_url: str, seen: Sighting, timeout_seconds: float) -> int | None:
        bound = aiohttp.ClientTimeout(total=timeout_seconds)
        for path in slots_paths(seen.engine):
            try:
                page, problems = await self._page(f"{base_url}{path}", bound)
                document = None if problems else msgspec.json.decode(page)
            except (aiohttp.ClientError, OSError, TimeoutError, *lenient.MALFORMED_JSON):
                continue
            if document is not None:
                return read_slots(seen.engine, document, seen.ranks)
        return None

    def forget(self, base_url: str) -> None:
        self._health.forget(base_url)

    async def close(self) -> None:
        """Close all connections."""
        await self._health.close()
        await self._http.close()

    async def _models(self, url: str, bound: aiohttp.ClientTimeout) -> tuple[str, ...] | None:
        """The models that the engine names; None where it names none, or asks for a key."""
        page, problems = await self._page(url, bound)
        if problems:
            return None
        try:
            listed = msgspec.json.decode(page, type=_Models).data
        except lenient.MALFORMED_JSON:
            return None
        return tuple(dict.fromkeys(model.id for model in listed)) or None

    async def _health_status(self, base_url: str, seconds_max: float) -> int:
        bound = aiohttp.ClientTimeout(total=seconds_max)
        status = await self._status_of(f"{base_url}/health", bound)
        if status == 404:  # an OpenAI-compatible server without a health page
            status = await self._status_of(f"{base_url}/v1/models", bound)
        return status

    async def _status_of(self, url: str, bound: aiohttp.ClientTimeout) -> int:
        async with self._http.get(url, timeout=bound, allow_redirects=False) as answer:
            return answer.status

    async def _page(self, url: str, bound: aiohttp.ClientTimeout) -> tuple[bytes, tuple[str, ...]]:
        async with self._http.get(url, timeout=bound) as answer:
            if answer.status != 200:
                return b"", (f"{answer.url.path} answers {answer.status}",)
            page = await answer.content.read(PAGE_BYTES_MAX)
            while len(page) < PAGE_BYTES_MAX and (
                more := await answer.content.read(PAGE_BYTES_MAX - len(page))
            ):
                page += more
            return page, ()
