"""Replicas from the EndpointSlices of a Kubernetes service: list, then watch, as the API's conventions want it.

An endpoint that is ready is a replica; one that is not (starting, terminating) is one that drains, so that what runs there
may finish. The API server's outages change nothing, nor do slices that are not clear: the last set stays until there is a
new one. A version that the server has forgotten (410 Gone) means that everything is listed afresh. It must not know what a
replica is used for.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import structlog

from tao.gateway.sources.endpoint_slices import ServiceSlices, SliceError
from tao.gateway.sources.port import Wanted
from tao.gateway.wire.lenient import MALFORMED_JSON

LIST_SECONDS_MAX = 30.0
WATCH_SECONDS = 240
SILENCE_SECONDS_MAX = WATCH_SECONDS + 30.0
PAGE_SLICES = 500
LINE_BYTES_MAX = 16 << 20
PAUSE_SECONDS_MAX = 30.0


class KubernetesError(Exception):
    """The API server refused or cannot be reached, or the address of the service is ill-formed."""


class _GoneError(KubernetesError):
    """The server does not remember that version any more."""


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """How to reach the API server. The token is read anew for each request: it is renewed while the gateway runs."""

    api: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """What to trust; True: what the system trusts."""
        return True if self.ca_file is None else ssl.create_default_context(cafile=str(self.ca_file))

    def headers(self) -> dict[str, str]:
        """For one request. Raises `KubernetesError` where the token cannot be read."""
        if self.token_file is None:
            return {"accept": "application/json"}
        try:
            token = self.token_file.read_text("utf-8").strip()
        except OSError as error:
            raise KubernetesError(f"token {self.token_file}: {error.strerror or error}") from None
        return {"accept": "application/json", "authorization": f"Bearer {token}"}


class EndpointSlices:
    """Implements `ReplicaSource` for one service, named `NAMESPACE/SERVICE` or `NAMESPACE/SERVICE:PORT`.

    PORT is the name or the number of the port in the slices; it may be left out where they have one only. Raises
    `KubernetesError` for another form. `pause_seconds`: the first pause after a failure; it doubles up to 30 s.
    """

    def __init__(self, service: str, access: KubernetesAccess, pause_seconds: float = 1.0) -> None:
        namespace, slash, rest = service.partition("/")
        name, colon, port = rest.partition(":")
        if not (slash and namespace and name and "/" not in rest) or bool(colon) != bool(port):
            raise KubernetesError(
                f"{service!r} is not of the form NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT"
            )
        self.name = f"kubernetes {service}"
        self.problem: str | None = None
        self._access = access
        self._port = port or None
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices"
        self._select = {"labelSelector": f"kubernetes.io/service-name={name}"}
        self._pause_seconds = pause_seconds
        self._log = structlog.get_logger("tao.replicas")

    async def desired(self) -> AsyncIterator[tuple[Wanted, ...]]:
        """See `ReplicaSource.desired`."""
        last: tuple[Wanted, ...] | None = None
        pause_seconds = self._pause_seconds
        connector = aiohttp.TCPConnector(ssl=self._access.tls)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http:
            while True:
                try:
                    async for wanted in self._follow(http):
                        pause_seconds = self._pause_seconds
                        if wanted is not None and wanted != last:
                            last = wanted
                            yield wanted
                except _GoneError:
                    pass  # what was missed meanwhile is in the next list
                except (KubernetesError, SliceError, aiohttp.ClientError, OSError, TimeoutError) as error:
                    self._complain(f"{type(error).__name__}: {error}".removesuffix(": "))
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)

    async def _follow(self, http: aiohttp.ClientSession) -> AsyncIterator[tuple[Wanted, ...] | None]:
        """List, then watch on and on from there; ends by an exception. None: what there is now is not clear."""
        slices, version = await self._list(http)
        begun: set[str] = set()
        yield self._wanted(slices)
        while True:
            if version in begun:  # the server ended the last watch without a word: do not ask at once again
                await asyncio.sleep(self._pause_seconds)
            begun = {version}
            async for kind, item in self._watch(http, version):
                version = str(item.get("metadata", {}).get("resourceVersion") or version)
                if kind == "BOOKMARK":
                    continue
                slices.apply(kind, item)
                yield self._wanted(slices)

    async def _list(self, http: aiohttp.ClientSession) -> tuple[ServiceSlices, str]:
        slices = ServiceSlices()
        more: dict[str, str] = {}
        while True:
            async with self._get(
                http, LIST_SECONDS_MAX, {**self._select, "limit": str(PAGE_SLICES), **more}
            ) as answer:
                page = _document(await answer.read())
            for item in page.get("items") or ():
                slices.apply("ADDED", item)
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return slices, str(metadata.get("resourceVersion") or "")
            more = {"continue": str(metadata["continue"])}

    async def _watch(
        self, http: aiohttp.ClientSession, version: str
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events until the server ends the watch, as it does every few minutes."""
        query = {
            **self._select,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._get(http, None, query) as answer:
            async for line in _lines(answer):
                event = _document(line)
                kind, item = event.get("type"), event.get("object")
                if not isinstance(item, dict):
                    raise KubernetesError(f"an event without an object: {line[:200]!r}")
                if kind == "ERROR":
                    raise _refused(item.get("code"), item.get("message"))
                yield str(kind), item

    @asynccontextmanager
    async def _get(
        self, http: aiohttp.ClientSession, seconds_max: float | None, query: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        bound = aiohttp.ClientTimeout(
            total=seconds_max, sock_connect=LIST_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX
        )
        url = self._access.api.rstrip("/") + self._path
        async with http.get(
            url, params=query, headers=self._access.headers(), timeout=bound, allow_redirects=False
        ) as answer:
            if answer.status != 200:
                raise _refused(answer.status, (await answer.content.read(500)).decode("utf-8", "replace"))
            yield answer

    def _wanted(self, slices: ServiceSlices) -> tuple[Wanted, ...] | None:
        try:
            wanted = slices.wanted(self._port)
        except SliceError as error:
            self._complain(str(error))
            return None
        self.problem = None
        return wanted

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            self._log.error("replicas from Kubernetes may be out of date", source=self.name, problem=problem)
        self.problem = problem


def _refused(code: object, message: object) -> KubernetesError:
    if code == 410:
        return _GoneError(str(message))
    hint = "; the service account needs get, list and watch on endpointslices" if code in {401, 403} else ""
    return KubernetesError(f"the API server answers {code}: {message}{hint}")


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content)
    except MALFORMED_JSON as error:
        raise KubernetesError(f"the API server sent no JSON: {error}") from None
    if not isinstance(document, dict):
        raise KubernetesError("the API server sent JSON that is no object")
    return document


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for piece in answer.content.iter_any():
        buffer += piece
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in lines:
            if line.strip():
                yield bytes(line)
        if len(buffer) > LINE_BYTES_MAX:
            raise KubernetesError(f"the API server sent a line of more than {LINE_BYTES_MAX} bytes")
