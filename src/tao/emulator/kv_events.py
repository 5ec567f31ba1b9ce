"""KV cache events over ZMQ in vLLM's format, with replay.

PUB frames: topic, 8-byte big-endian sequence, msgpack [ts, events, data_parallel_rank]; events are maps
with `type`. Replay: a ROUTER socket answers an 8-byte start sequence with the kept batches and an end
mark (sequence -1). Hashes of blocks are 64-bit numbers that mean something within this process only, as
in a real engine. It must not know HTTP or requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from tao.emulator.tokens import chain_token_ids
from tao.enginemodel import Chain

KEPT_BATCHES = 10_000
END_SEQUENCE = (-1).to_bytes(8, "big", signed=True)


class KvEvents:
    """A BlockObserver that publishes what the engine model tells it, one batch for each `flush`."""

    def __init__(self, endpoint: str, replay_endpoint: str | None, topic: str, block_tokens: int) -> None:
        """Bind the sockets; a port `*` is chosen by the system. Raises zmq.ZMQError for a bad endpoint."""
        self.topic = topic
        self._block_tokens = block_tokens
        self._events: list[dict[str, Any]] = []
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT_BATCHES)
        self._sequence = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._session_of: dict[str, str] = {}
        self._context = zmq.asyncio.Context()
        self._publisher: zmq.Socket[bytes] = zmq.Socket(zmq.Context(self._context), zmq.PUB)
        self._replayer: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self.replay_endpoint: str | None = None
        try:
            self._publisher.bind(endpoint)
            self.endpoint = self._publisher.getsockopt_string(zmq.LAST_ENDPOINT)
            if replay_endpoint is not None:
                self._replayer = self._context.socket(zmq.ROUTER)
                self._replayer.bind(replay_endpoint)
                self.replay_endpoint = self._replayer.getsockopt_string(zmq.LAST_ENDPOINT)
                self._task = asyncio.get_running_loop().create_task(self._serve_replay(self._replayer))
        except zmq.ZMQError:
            self.close()
            raise

    def name_session(self, request_id: str, session_id: str) -> None:
        """Echo this session id with the blocks that the request stores."""
        self._session_of[request_id] = session_id

    def forget(self, request_id: str) -> None:
        self._session_of.pop(request_id, None)

    # ---- BlockObserver -----------------------------------------------------------------------------------

    def stored(self, chain: Chain, first: int, end: int, request_id: str) -> None:
        size = self._block_tokens
        event: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": self._hashes(chain, first, end),
            "parent_block_hash": self._hashes(chain, first - 1, first)[0] if first else None,
            "token_ids": chain_token_ids(chain, first * size, end * size),
            "block_size": size,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": None,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        session = self._session_of.get(request_id)
        if session is not None:
            event["session_id"] = session
        self._events.append(event)

    def removed(self, chain: Chain, first: int, end: int) -> None:
        hashes = self._hashes(chain, first, end)
        self._events.append({"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", "group_idx": 0})

    def cleared(self) -> None:
        self._events.append({"type": "AllBlocksCleared"})

    # ---- publishing --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Publish what was told since the last flush as one batch."""
        if not self._events:
            return
        events, self._events = self._events, []
        payload = self._encode([time.time(), events, 0])
        frames = (self.topic.encode(), self._sequence.to_bytes(8, "big"), payload)
        self._kept.append((self._sequence, payload))
        self._sequence += 1
        with contextlib.suppress(zmq.Again):
            self._publisher.send_multipart(frames, zmq.NOBLOCK)

    async def _serve_replay(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            client, start = frames[0], int.from_bytes(frames[2], "big")
            for sequence, payload in tuple(self._kept):
                if sequence >= start:
                    await router.send_multipart((client, b"", sequence.to_bytes(8, "big"), payload))
            await router.send_multipart((client, b"", END_SEQUENCE, b""))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._publisher.close(linger=0)
        if self._replayer is not None:
            self._replayer.close(linger=0)
        self._context.term()

    def _hashes(self, chain: Chain, first: int, end: int) -> list[int]:
        size = self._block_tokens
        return [chain.identity((block + 1) * size) & 0xFFFFFFFFFFFFFFFF for block in range(first, end)]
