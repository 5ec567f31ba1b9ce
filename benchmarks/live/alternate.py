"""Round-robin and nothing else: the gateway's transport, each request to the replica after the one before.

usage: python -m benchmarks.live.alternate PORT REPLICA_URL ...
The plain baseline of the live benchmark. It reads no body, keeps no session and holds nothing.
"""

import asyncio
import sys
from typing import Any

import uvloop

from benchmarks._http_roles import PassThrough
from tao.gateway.config import Timeouts
from tao.gateway.http.asgi import App
from tao.gateway.http.server import serving
from tao.gateway.http.upstream import HttpUpstream

BODY_BYTES_MAX = 1 << 26


class Alternate:
    """Passes each request on to the next replica."""

    def __init__(self, upstream: HttpUpstream, urls: list[str]) -> None:
        self._ways = [PassThrough(upstream, url) for url in urls]
        self._requests = 0

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    async def handle(self, request: Any, client: Any) -> None:
        """One request: only turns count, so that looking at the models does not shift the order."""
        way = self._ways[self._requests % len(self._ways)]
        self._requests += request.method == "POST"
        await way.handle(request, client)


async def run(port: int, urls: list[str]) -> None:
    """Serve until terminated."""
    async with serving(App(Alternate(HttpUpstream(Timeouts()), urls), BODY_BYTES_MAX), port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1]), sys.argv[2:]))
