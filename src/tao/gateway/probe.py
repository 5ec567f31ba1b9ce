"""Looking at a replica over HTTP: is it healthy, and what does its metrics page tell?

A replica without a metrics page is no dead one, nor is one whose health page alone is late, or whose other pages alone are
late, break off or fail for the moment: what it does not tell becomes a problem that is named. It must not know what anybody
concludes from a sighting.
"""

import asyncio
from dataclasses import replace
from http import HTTPStatus

import aiohttp
import msgspec

from tao.engines import read_slots, read_status, slots_paths
from tao.gateway.healthpages import HealthPages
from tao.gateway.member import Sighting
from tao.gateway.wire import lenient

PAGE_BYTES_MAX = 16 << 20
LATE = "its health page is late, its other pages are not: the engine is busy"
NOT_NOW = frozenset({408, 429, 500, 502, 503, 504})
"""Answers of an engine, or of something before it, that may be others later."""
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)


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
        try:
            status = await self._health.status(base_url, timeout_seconds)
            if status not in {200, None}:
                return Sighting(False, f"its health page answers {status}")
            is_late = status is None
            seen = await self._pages(base_url, timeout_seconds / 2 if is_late else timeout_seconds)
        except aiohttp.ClientConnectorError as error:
            return Sighting(False, str(error), refused=_is_refusal(error))
        except _FAILURES as error:
            return Sighting(False, _named(error))
        if not is_late:
            return seen
        if seen.missing:  # a late health page is excused only by pages that come at once
            return Sighting(False, seen.missing[0])
        return replace(seen, problems=(*seen.problems, LATE))

    async def _pages(self, base_url: str, seconds_max: float) -> Sighting:
        """What the pages of a healthy replica tell, each within so many seconds. Raises where nothing listens by now."""
        (page, problems, late_page), (models, _, late_models) = await asyncio.gather(
            self._page_if_it_comes(base_url, "/metrics", seconds_max),
            self._page_if_it_comes(base_url, "/v1/models", seconds_max),
        )
        missing = late_page + late_models
        told = read_status(page)
        return Sighting(
            True,
            "healthy",
            capacity_tokens=told.capacity_tokens,
            served=told.served,
            started_at=told.started_at,
            engine=told.engine,
            models=_models(models),
            running=told.running,
            waiting=told.waiting,
            kv_usage=told.kv_usage,
            ranks=max(1, len(told.ranks)),
            problems=(*missing, *problems, *told.problems),
            missing=missing,
        )

    async def slots(self, base_url: str, seen: Sighting, timeout_seconds: float) -> int | None:
        bound = aiohttp.ClientTimeout(total=timeout_seconds)
        for path in slots_paths(seen.engine):
            try:
                status, page = await self._page(f"{base_url}{path}", bound)
                document = msgspec.json.decode(page) if status == HTTPStatus.OK else None
            except (*_FAILURES, *lenient.MALFORMED_JSON):
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

    async def _health_status(self, base_url: str, seconds_max: float) -> int:
        bound = aiohttp.ClientTimeout(total=seconds_max)
        status = await self._status_of(f"{base_url}/health", bound)
        if status == 404:  # an OpenAI-compatible server without a health page
            status = await self._status_of(f"{base_url}/v1/models", bound)
        return status

    async def _status_of(self, url: str, bound: aiohttp.ClientTimeout) -> int:
        async with self._http.get(url, timeout=bound, allow_redirects=False) as answer:
            return answer.status

    async def _page_if_it_comes(
        self, base_url: str, path: str, seconds_max: float
    ) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
        """A page, why there is none, and why there is none at present; empty where it does not come."""
        bound = aiohttp.ClientTimeout(total=seconds_max)
        try:
            status, page = await self._page(f"{base_url}{path}", bound)
        except _FAILURES as error:
            if _is_refusal(error):
                raise
            return b"", (), (f"{path} did not come: {_named(error)}",)
        if status == HTTPStatus.OK:
            return page, (), ()
        problem = (f"{path} answers {status}",)
        return (b"", (), problem) if status in NOT_NOW else (b"", problem, ())

    async def _page(self, url: str, bound: aiohttp.ClientTimeout) -> tuple[int, bytes]:
        """Status and page, of which so much is read; empty where the status is not 200."""
        async with self._http.get(url, timeout=bound) as answer:
            if answer.status != HTTPStatus.OK:
                return answer.status, b""
            page = await answer.content.read(PAGE_BYTES_MAX)
            while len(page) < PAGE_BYTES_MAX and (
                more := await answer.content.read(PAGE_BYTES_MAX - len(page))
            ):
                page += more
            return answer.status, page


def _models(page: bytes) -> tuple[str, ...] | None:
    """The models that a page names; None where it names none, asks for a key, or did not come."""
    try:
        listed = msgspec.json.decode(page, type=_Models).data
    except lenient.MALFORMED_JSON:
        return None
    return tuple(dict.fromkeys(model.id for model in listed)) or None


def _is_refusal(error: BaseException) -> bool:
    """Whether nothing listens there, whatever it was that another page has just said."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    )


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
