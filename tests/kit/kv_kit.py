"""Frames of KV events as engines publish them; a publisher with a replay socket for tests that need real sockets, and a path
to it that may die.
"""

import asyncio
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from tao.engines.kv_sources import KvSource

END = (-1).to_bytes(8, "big", signed=True)


def stored(
    hashes: list[int], parent: int | None = None, session: str | None = "s", **more: Any
) -> dict[str, Any]:
    """A `BlockStored` as a map, in blocks of 16 tokens."""
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": [1] * 16 * len(hashes),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **({} if session is None else {"session_id": session}),
        **more,
    }


def removed(*hashes: int, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **more}


CLEARED = {"type": "AllBlocksCleared"}


def frames(
    sequence: int, *events: Any, topic: bytes = b"", at: float | None = None, rank: int | None = 0
) -> list[bytes]:
    """The three frames of a batch."""
    payload = msgspec.msgpack.encode([float(sequence) if at is None else at, list(events), rank])
    return [topic, sequence.to_bytes(8, "big"), payload]


class Publisher:
    """What an engine binds, by hand: batches may be kept back from subscribers, and are replayed all the same."""

    def __init__(self, context: zmq.asyncio.Context, topic: bytes = b"") -> None:
        self.topic = topic
        self.replays: list[int] = []
        self._kept: list[list[bytes]] = []
        self._pub = context.socket(zmq.PUB)
        self._router = context.socket(zmq.ROUTER)
        for socket in (self._pub, self._router):
            socket.bind("tcp://127.0.0.1:*")
        self.source = KvSource(
            self._pub.getsockopt_string(zmq.LAST_ENDPOINT),
            self._router.getsockopt_string(zmq.LAST_ENDPOINT),
            topic.decode(),
        )
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def publish(
        self, *events: Any, lost: bool = False, topic: bytes | None = None, at: float | None = None
    ) -> None:
        """The next batch; `lost`: no subscriber hears it."""
        batch = frames(len(self._kept), *events, topic=self.topic if topic is None else topic, at=at)
        self._kept.append(batch)
        if not lost:
            await self._pub.send_multipart(batch)

    @property
    def published(self) -> int:
        """How many batches there were."""
        return len(self._kept)

    def forget(self) -> None:
        """Keep no batch of before for replays."""
        self._kept = [[] for _ in self._kept]

    async def _serve(self) -> None:
        while True:
            client, empty, start = await self._router.recv_multipart()
            assert empty == b""
            self.replays.append(int.from_bytes(start, "big"))
            for batch in filter(None, self._kept[self.replays[-1] :]):
                await self._router.send_multipart([client, b"", *batch])
            await self._router.send_multipart([client, b"", b"", END, b""])

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for socket in (self._pub, self._router):
            socket.close(linger=0)


class Path:
    """A machine between a subscriber and an endpoint. `connections`: those that were made through it, up to now."""

    def __init__(self, endpoint: str) -> None:
        self.connections = 0
        self._host, _, port = endpoint.removeprefix("tcp://").partition(":")
        self._port = int(port)
        self._dead = 0
        self._open: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Path":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.endpoint = "tcp://127.0.0.1:" + str(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()

    def die(self) -> None:
        """What is sent over the connections of before is lost from now on; neither end is told."""
        self._dead = self.connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        there, to_there = await asyncio.open_connection(self._host, self._port)
        self._open += [writer, to_there]
        await asyncio.gather(self._pass(number, reader, to_there), self._pass(number, there, writer))

    async def _pass(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if number > self._dead:
                writer.write(data)
        writer.close()
