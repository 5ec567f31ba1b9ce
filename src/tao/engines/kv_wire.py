"""KV cache events as bytes: the three frames of a batch and what is in them (vLLM's `kv_events.py`, SGLang's copy of it).

A batch is msgpack `[ts, [event, ...], data_parallel_rank]`; an event is a tagged array (`["BlockStored", ...]`) in older
engines and a map with `type` in newer ones. Token ids are skipped undecoded: they are most of the bytes, and nothing here
needs them. Whatever the bytes are, nothing is raised: the answer is a batch, or a sentence that says what is wrong. It
must not know sockets, sequences or sessions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

PAYLOAD_BYTES_MAX = 64 << 20
EVENTS_MAX = 1 << 20
END_SEQUENCE = -1
"""The sequence of the mark that ends a replay."""

_HASH_BITS = (1 << 64) - 1
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks that follow one another in a prompt were put into the cache. `parent`: the block before the first."""

    hashes: tuple[int, ...]
    parent: int | None
    block_tokens: int
    group: int
    kind: str | None
    medium: str
    session: str | None


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks were evicted."""

    hashes: tuple[int, ...]
    group: int
    medium: str


@dataclass(frozen=True, slots=True)
class AllCleared:
    """The whole cache was emptied."""


KvEvent = BlocksStored | BlocksRemoved | AllCleared


@dataclass(frozen=True, slots=True)
class KvBatch:
    """The events of one engine step. `at`: the engine's own wall clock. `unknown`: names of kinds that nobody here knows."""

    topic: bytes
    sequence: int
    at: float
    rank: int
    events: tuple[KvEvent, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that is no batch, and why. `sequence` where at least that could be read."""

    why: str
    sequence: int | None = None


class _Stored(msgspec.Struct):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: msgspec.Raw
    block_size: int
    lora_id: msgspec.Raw = msgspec.Raw()
    medium: str | None = None
    lora_name: msgspec.Raw = msgspec.Raw()
    extra_keys: msgspec.Raw = msgspec.Raw()
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: msgspec.Raw = msgspec.Raw()
    locality: msgspec.Raw = msgspec.Raw()
    ownership: msgspec.Raw = msgspec.Raw()
    session_id: str | None = None


class _Removed(msgspec.Struct):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _StoredArray(_Stored, array_like=True, tag="BlockStored"):
    pass


class _RemovedArray(_Removed, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


class _StoredMap(_Stored, tag="BlockStored"):
    pass


class _RemovedMap(_Removed, tag="BlockRemoved"):
    pass


class _ClearedMap(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class KvDecoder:
    """Reads the frames of one stream. Holds nothing but prepared decoders."""

    def __init__(self) -> None:
        self._list = msgspec.msgpack.Decoder(list[msgspec.Raw])
        self._arrays = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)
        self._maps = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap)
        self._number = msgspec.msgpack.Decoder(float)
        self._rank = msgspec.msgpack.Decoder(int | None)

    def read(self, frames: Sequence[bytes]) -> KvBatch | Unreadable:
        """A published message: topic, sequence, payload."""
        if len(frames) != 3:
            return Unreadable(
                f"a message of {len(frames)} frames, where topic, sequence and payload were expected"
            )
        return self._message(frames[0], frames[1], frames[2])

    def read_replayed(self, frames: Sequence[bytes]) -> KvBatch | Unreadable | None:
        """A message of the replay socket, without the routing frames: topic (newer engines), sequence, payload.

        None is the mark that ends the replay.
        """
        if len(frames) not in {2, 3}:
            return Unreadable(f"a replayed message of {len(frames)} frames, where 2 or 3 were expected")
        sequence, payload = frames[-2:]
        if len(sequence) == 8 and int.from_bytes(sequence, "big", signed=True) == END_SEQUENCE:
            return None
        return self._message(frames[0] if len(frames) == 3 else b"", sequence, payload)

    def _message(self, topic: bytes, sequence: bytes, payload: bytes) -> KvBatch | Unreadable:
        if len(sequence) != 8:
            return Unreadable(f"a sequence of {len(sequence)} bytes, where 8 were expected")
        number = int.from_bytes(sequence, "big", signed=True)
        if number < 0:
            return Unreadable(f"sequence {number}")
        if len(payload) > PAYLOAD_BYTES_MAX:
            return Unreadable(f"a payload of {len(payload)} bytes", number)
        try:
            return self._payload(topic, number, payload)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
            return Unreadable(f"payload: {str(error)[:_SHOWN_CHARS]}", number)

    def _payload(self, topic: bytes, number: int, payload: bytes) -> KvBatch:
        parts = self._list.decode(payload)
        if len(parts) < 2:
            raise ValueError(f"a batch of {len(parts)} parts, where time, events and rank were expected")
        at = self._number.decode(parts[0])
        raw_events = self._list.decode(parts[1])
        rank = self._rank.decode(parts[2]) if len(parts) > 2 else None
        if not isfinite(at):
            raise ValueError(f"its time is {at}")
        if len(raw_events) > EVENTS_MAX:
            raise ValueError(f"{len(raw_events)} events in one batch")
        events: list[KvEvent] = []
        unknown: list[str] = []
        for raw in raw_events:
            event = self._event(raw)
            if isinstance(event, str):
                unknown.append(event)
            else:
                events.append(event)
        return KvBatch(topic, number, at, rank or 0, tuple(events), tuple(unknown))

    def _event(self, raw: msgspec.Raw) -> KvEvent | str:
        is_array = _is_array(raw)
        try:
            event: Any = (self._arrays if is_array else self._maps).decode(raw)
        except msgspec.ValidationError:
            name = _unknown_kind(raw, is_array=is_array)
            if name is None:
                raise
            return name
        match event:
            case _Stored():
                return _stored(event)
            case _Removed():
                return BlocksRemoved(_folded(event.block_hashes), event.group_idx or 0, event.medium or "GPU")
            case _:
                return AllCleared()


def _stored(event: _Stored) -> BlocksStored:
    if event.block_size <= 0:
        raise ValueError(f"block_size {event.block_size}")
    return BlocksStored(
        hashes=_folded(event.block_hashes),
        parent=None if event.parent_block_hash is None else _fold(event.parent_block_hash),
        block_tokens=event.block_size,
        group=event.group_idx or 0,
        kind=event.kv_cache_spec_kind,
        medium=event.medium or "GPU",
        session=event.session_id or None,
    )


def _folded(hashes: list[int | bytes]) -> tuple[int, ...]:
    return tuple(map(_fold, hashes))


def _fold(value: int | bytes) -> int:
    """64 bits of a hash, the same whether the engine sends it as bytes or as its last 64 bits."""
    return value & _HASH_BITS if isinstance(value, int) else int.from_bytes(value[-8:], "big")


def _is_array(raw: msgspec.Raw) -> bool:
    first = memoryview(raw)[0]
    return 0x90 <= first <= 0x9F or first in {0xDC, 0xDD}


def _unknown_kind(raw: msgspec.Raw, *, is_array: bool) -> str | None:
    """The name of an event of a kind that is not known here; None where it is a known kind, ill formed."""
    document = msgspec.msgpack.decode(raw)
    name = None
    if is_array:
        name = document[0] if document else None
    elif isinstance(document, dict):
        name = document.get("type")
    known = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
    return name[:_SHOWN_CHARS] if isinstance(name, str) and name not in known else None
