"""A small Kubernetes API server for EndpointSlices of one namespace: list with paging, watch, versions, 410 Gone.

It follows the published conventions (discovery.k8s.io/v1): a list has the version of the whole collection, a watch from a
version tells every later change, a version older than the history is Gone, bookmarks move the version on. It must not know
who asks.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
Json = dict[str, Any]


def endpoint(address: str, uid: str = "", **conditions: bool | None) -> Json:
    """One endpoint; `conditions` are ready, serving, terminating."""
    return {
        "addresses": [address],
        "conditions": conditions,
        "targetRef": {
            "kind": "Pod",
            "namespace": "llm",
            "name": f"pod-{uid or address}",
            "uid": uid or address,
        },
        "nodeName": "node-1",
    }


def slice_of(name: str, *endpoints: Json, ports: list[Json] | None = None, kind: str = "IPv4") -> Json:
    """An EndpointSlice of the service `engines`."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "llm",
            "labels": {"kubernetes.io/service-name": "engines"},
        },
        "addressType": kind,
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}] if ports is None else ports,
    }


@dataclass(slots=True)
class FakeKubernetes:
    """The server. `history`: (version, event) of all; a watch from before `compacted` is Gone."""

    token: str | None = None
    page: int = 500
    version: int = 100
    compacted: int = 100
    store: dict[str, Json] = field(default_factory=dict)
    history: list[tuple[int, Json | bytes]] = field(default_factory=list)
    lists: int = 0
    watches: list[int] = field(default_factory=list)  # the versions that watches began at
    asked: list[dict[str, str]] = field(default_factory=list)
    fail_with: int | None = None
    port: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _cut: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def put(self, item: Json) -> None:
        """Create or change a slice."""
        name = item["metadata"]["name"]
        self.store[name] = await self._tell("MODIFIED" if name in self.store else "ADDED", item)

    async def delete(self, name: str) -> None:
        await self._tell("DELETED", self.store.pop(name))

    async def bookmark(self) -> None:
        """Something else changed: the version of the collection moves on."""
        await self._tell(
            "BOOKMARK", {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": {}}
        )

    async def compact(self) -> None:
        """Forget the history; watches from before are Gone."""
        self.compacted = self.version

    async def cut_watches(self) -> None:
        """End every watch in the middle, as a server that restarts does."""
        async with self._changed:
            self._cut += 1
            self._changed.notify_all()

    async def send_error(self, code: int) -> None:
        """An error event inside the running watches."""
        async with self._changed:
            status = {
                "kind": "Status",
                "status": "Failure",
                "code": code,
                "message": "too old resource version",
            }
            self.history.append((self.version, {"type": "ERROR", "object": status}))
            self._changed.notify_all()

    async def send_raw(self, line: bytes) -> None:
        """Anything at all inside the running watches."""
        async with self._changed:
            self.history.append((self.version, line))
            self._changed.notify_all()

    async def _tell(self, kind: str, item: Json) -> Json:
        async with self._changed:
            self.version += 1
            told = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            self.history.append((self.version, {"type": kind, "object": told}))
            self._changed.notify_all()
        return told

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return web.json_response(_status(401, "Unauthorized"), status=401)
        if self.fail_with is not None:
            return web.json_response(_status(self.fail_with, "failed"), status=self.fail_with)
        if request.match_info["namespace"] != "llm":
            return web.json_response(
                {"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}, "items": []}
            )
        assert request.query["labelSelector"] == "kubernetes.io/service-name=engines"
        if request.query.get("watch") == "true":
            return await self._watch(request)
        self.lists += 1
        start = int(request.query.get("continue", "0"))
        names = sorted(self.store)
        size = min(self.page, int(request.query.get("limit", "500")))
        metadata = {"resourceVersion": str(self.version)}
        if start + size < len(names):
            metadata["continue"] = str(start + size)
        items = [self.store[name] for name in names[start : start + size]]
        return web.json_response({"kind": "EndpointSliceList", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        self.watches.append(since)
        if since < self.compacted:
            return web.json_response(_status(410, "Expired: too old resource version"), status=410)
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        told = sum(1 for version, _ in self.history if version <= since)
        cut = self._cut
        while cut == self._cut:
            for _, event in self.history[told:]:
                line = (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n"
                await response.write(line[:10])  # a line comes in pieces
                await response.write(line[10:])
            told = len(self.history)
            async with self._changed:
                while told == len(self.history) and cut == self._cut:
                    await self._changed.wait()
        await response.write_eof()
        return response


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@asynccontextmanager
async def fake_kubernetes(**settings: Any) -> AsyncIterator[FakeKubernetes]:
    """A running API server."""
    server = FakeKubernetes(**settings)
    app = web.Application()
    app.router.add_get(PATH, server._serve)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
