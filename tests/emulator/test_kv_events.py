"""KV events over ZMQ: vLLM's format, the cache they describe, replay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
import zmq
import zmq.asyncio

from tao.emulator import Emulator

Start = Callable[..., Awaitable[Emulator]]


async def replay(endpoint: str, start: int) -> list[tuple[int, Any]]:
    """All kept batches from a sequence on, by vLLM's replay protocol."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    await socket.send_multipart((b"", start.to_bytes(8, "big")))
    found = []
    while True:
        _, sequence, payload = await asyncio.wait_for(socket.recv_multipart(), 10)
        number = int.from_bytes(sequence, "big", signed=True)
        if number < 0:
            break
        found.append((number, msgspec.msgpack.decode(payload)))
    socket.close(linger=0)
    context.term()
    return found


async def ask(http: aiohttp.ClientSession, emulator: Emulator, text: str, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "ignore_eos": True, **fields}
    headers = {"X-Session-ID": "from-header"}
    async with http.post(emulator.url + "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200
        return await response.json()


async def test_events_describe_the_cache_and_can_be_replayed(
    start: Start, http: aiohttp.ClientSession
) -> None:
    emulator = await start(
        kv_tokens=1600,
        kv_events="tcp://127.0.0.1:*",
        kv_events_replay="tcp://127.0.0.1:*",
        kv_events_topic="t",
    )
    async with http.get(emulator.url + "/kv_event_sources") as response:
        (source,) = await response.json()
    assert source["topic"] == "t"
    context = zmq.asyncio.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.subscribe(b"t")
    subscriber.connect(source["endpoint"])
    seen: list[tuple[int, Any]] = []
    # A subscription takes a moment to arrive: ask until something is heard; what was missed is replayed
    # below.
    number = 0
    while not seen:
        await ask(http, emulator, f"{number} " * 400, session_id="from-body" if number % 2 else None)
        number += 1
        while await subscriber.poll(50):
            topic, sequence, payload = await subscriber.recv_multipart()
            assert topic == b"t"
            seen.append((int.from_bytes(sequence, "big"), msgspec.msgpack.decode(payload)))
    for _ in range(6):
        await ask(http, emulator, f"{number} " * 600, session_id="from-body" if number % 2 else None)
        number += 1
    async with http.post(emulator.url + "/reset_prefix_cache") as response:
        assert (await response.json())["success"]
    batches = await replay(source["replay_endpoint"], 0)
    assert [sequence for sequence, _ in batches] == list(range(len(batches)))
    assert all(batch in batches for batch in seen)
    assert await replay(source["replay_endpoint"], len(batches) - 1) == batches[-1:]
    subscriber.close(linger=0)
    context.term()

    cached: set[int] = set()
    sessions = set()
    kinds = []
    for _, (stamp, events, rank) in batches:
        assert stamp > 0
        assert rank == 0
        for event in events:
            kinds.append(event["type"])
            match event["type"]:
                case "BlockStored":
                    assert len(event["token_ids"]) == 16 * len(event["block_hashes"])
                    assert event["parent_block_hash"] is None or event["parent_block_hash"] in cached
                    cached.update(event["block_hashes"])
                    sessions.add(event["session_id"])
                case "BlockRemoved":
                    assert set(event["block_hashes"]) <= cached
                    cached -= set(event["block_hashes"])
                case _:
                    cached.clear()
    assert {"BlockStored", "BlockRemoved"} <= set(kinds)
    assert kinds[-1] == "AllBlocksCleared"
    assert sessions == {"from-header", "from-body"}


async def test_token_ids_are_those_of_tokenize(start: Start, http: aiohttp.ClientSession) -> None:
    emulator = await start(kv_events="tcp://127.0.0.1:*", kv_events_replay="tcp://127.0.0.1:*")
    await ask(http, emulator, "some words " * 40)
    async with http.post(
        emulator.url + "/tokenize", json={"messages": [{"role": "user", "content": "some words " * 40}]}
    ) as response:
        ids = (await response.json())["tokens"]
    events = emulator.service.kv_events
    assert events is not None
    assert events.replay_endpoint is not None
    stored = [
        token
        for _, (_, batch, _) in await replay(events.replay_endpoint, 0)
        for e in batch
        for token in e["token_ids"]
    ]
    assert stored[: len(ids) // 16 * 16] == ids[: len(ids) // 16 * 16]


async def test_a_bad_endpoint_is_an_error(start: Start) -> None:
    with pytest.raises(zmq.ZMQError):
        await start(kv_events="nonsense")
    with pytest.raises(zmq.ZMQError):
        await start(kv_events="tcp://127.0.0.1:*", kv_events_replay="nonsense")
