"""KV events as bytes: both shapes of events, both shapes of replay, and whatever else may come."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_kit import CLEARED, END, frames, removed, stored

from tao.engines.kv_sources import KvSource, reachable, read_sources
from tao.engines.kv_wire import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvBatch,
    KvDecoder,
    Unreadable,
)

SEQUENCE = (5).to_bytes(8, "big")


def events(*given: object) -> tuple[object, ...]:
    batch = KvDecoder().read(frames(5, *given))
    assert isinstance(batch, KvBatch), batch
    return batch.events


def test_a_batch_of_maps() -> None:
    told = stored(
        [1, 2], 9, "a", group_idx=1, kv_cache_spec_kind="full_attention", extra_keys=[None, ["salt"]]
    )
    batch = KvDecoder().read(frames(5, told, removed(3, group_idx=1), CLEARED, topic=b"t", at=1.5, rank=2))
    assert batch == KvBatch(
        b"t",
        5,
        1.5,
        2,
        (
            BlocksStored((1, 2), 9, 16, 1, "full_attention", "GPU", "a"),
            BlocksRemoved((3,), 1, "GPU"),
            AllCleared(),
        ),
    )


def test_a_batch_of_tagged_arrays() -> None:
    old = ["BlockStored", [1, 2], None, [0] * 32, 16, None]
    new = ["BlockStored", [4], 2, [0] * 16, 16, None, "CPU", None, None, 3, "mamba", None, "LOCAL", None, "a"]
    assert events(old, new, ["BlockRemoved", [1]], ["BlockRemoved", [4], "CPU", 3], ["AllBlocksCleared"]) == (
        BlocksStored((1, 2), None, 16, 0, None, "GPU", None),
        BlocksStored((4,), 2, 16, 3, "mamba", "CPU", "a"),
        BlocksRemoved((1,), 0, "GPU"),
        BlocksRemoved((4,), 3, "CPU"),
        AllCleared(),
    )


def test_a_hash_is_the_same_as_bytes_and_as_a_number() -> None:
    digest = bytes(range(200, 232))
    number = int.from_bytes(digest, "big") & ((1 << 64) - 1)
    (by_bytes, by_number, signed) = events(
        stored([digest]),  # type: ignore[list-item]
        stored([number]),
        stored([number - (1 << 64)]),
    )
    assert by_bytes == by_number == signed


def test_kinds_of_events_that_nobody_knows_are_named() -> None:
    batch = KvDecoder().read(frames(5, {"type": "BlockMoved", "x": 1}, ["BlockCopied", 3], CLEARED))
    assert isinstance(batch, KvBatch)
    assert (batch.unknown, batch.events) == (("BlockMoved", "BlockCopied"), (AllCleared(),))


def test_an_engine_without_ranks() -> None:
    payload = msgspec.msgpack.encode([2, [["AllBlocksCleared"]]])
    batch = KvDecoder().read([b"", SEQUENCE, payload])
    assert isinstance(batch, KvBatch)
    assert (batch.rank, batch.at) == (0, 2.0)


def test_replayed_messages_with_and_without_a_topic() -> None:
    decoder = KvDecoder()
    topic, sequence, payload = frames(7, CLEARED, topic=b"t")
    with_topic, without = (
        decoder.read_replayed([topic, sequence, payload]),
        decoder.read_replayed([sequence, payload]),
    )
    assert isinstance(with_topic, KvBatch)
    assert isinstance(without, KvBatch)
    assert (with_topic.sequence, with_topic.topic, without.topic) == (7, b"t", b"")
    assert decoder.read_replayed([b"", END, b""]) is None
    assert decoder.read_replayed([END, b""]) is None
    assert isinstance(decoder.read_replayed([b""]), Unreadable)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "truncated"),
        (msgspec.msgpack.encode([]), "0 parts"),
        (msgspec.msgpack.encode({"ts": 1}), "Expected `array`"),
        (msgspec.msgpack.encode([1.0, [3], 0]), "Expected `object`"),
        (msgspec.msgpack.encode([1.0, [[]], 0]), "payload"),
        (msgspec.msgpack.encode([1.0, [{}], 0]), "`type`"),
        (msgspec.msgpack.encode([1.0, [{"type": "BlockStored"}], 0]), "`block_hashes`"),
        (msgspec.msgpack.encode([1.0, [stored([1], block_size=0)], 0]), "block_size 0"),
        (msgspec.msgpack.encode([float("nan"), [], 0]), "nan"),
        (msgspec.msgpack.encode([1.0, [], "x"]), "Expected `int"),
        (b"\x92\x00" + b"\x91" * 100_000, "recursion"),
    ],
)
def test_what_is_no_batch_is_said_and_its_sequence_kept(payload: bytes, why: str) -> None:
    read = KvDecoder().read([b"", SEQUENCE, payload])
    assert isinstance(read, Unreadable)
    assert why in read.why
    assert read.sequence == 5


@pytest.mark.parametrize(
    "message", [[], [b""], [b"", b"", b""], [b"", b"\xff" * 8, b""], [b"", SEQUENCE, b"", b""]]
)
def test_what_is_no_message_has_no_sequence(message: list[bytes]) -> None:
    read = KvDecoder().read(message)
    assert isinstance(read, Unreadable)
    assert read.sequence is None


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])
EVENTS = (
    st.builds(lambda name, rest: [name, *rest], NAMES, st.lists(ANYTHING, max_size=7))
    | st.builds(
        lambda name, fields: {**fields, "type": name},
        NAMES,
        st.dictionaries(
            st.sampled_from(
                ["block_hashes", "parent_block_hash", "token_ids", "block_size", "medium", "group_idx"]
            ),
            ANYTHING,
        ),
    )
    | ANYTHING
)


@given(st.lists(EVENTS, max_size=4) | ANYTHING, ANYTHING, ANYTHING, st.integers(0, 60))
def test_nothing_is_raised_whatever_is_encoded(told: object, at: object, rank: object, cut: int) -> None:
    payload = msgspec.msgpack.encode([at, told, rank])
    for bytes_ in (payload, payload[:cut], msgspec.msgpack.encode(told)):
        assert isinstance(KvDecoder().read([b"", SEQUENCE, bytes_]), KvBatch | Unreadable)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_nothing_is_raised_whatever_the_frames(message: list[bytes]) -> None:
    assert isinstance(KvDecoder().read(message), KvBatch | Unreadable)
    assert isinstance(KvDecoder().read_replayed(message), KvBatch | Unreadable | None)


# --- where they come from ----------------------------------------------------------------------------------------------


def test_sources_by_rank_and_as_a_list() -> None:
    entry = {
        "enable_kv_cache_events": True,
        "endpoint": "tcp://*:5557",
        "replay_endpoint": "tcp://10.0.0.9:6000",
        "topic": "kv",
    }
    first = KvSource("tcp://10.0.0.5:5557", "tcp://10.0.0.9:6000", "kv", 0)
    assert read_sources({"0": entry}, "10.0.0.5") == (first,)
    other = {"data_parallel_rank": 2, "endpoint": "tcp://[::]:7"}
    assert read_sources([other, entry], "::1") == (
        KvSource("tcp://[::1]:5557", "tcp://10.0.0.9:6000", "kv", 1),
        KvSource("tcp://[::1]:7", rank=2),
    )


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        None,
        7,
        {"0": None},
        [[1]],
        {"0": {"endpoint": "nonsense"}},
        {"0": {"endpoint": "inproc://x"}},
        {"0": {"endpoint": "tcp://h:65536"}},
        {"0": {"endpoint": "tcp://*:0"}},
        {"0": {"endpoint": "tcp://h:1", "enable_kv_cache_events": False}},
        {"0": {"endpoint": "tcp://h:1", "replay_endpoint": "file:///etc"}},
    ],
)
def test_what_is_no_source_is_left_out(document: object) -> None:
    assert read_sources(document, "h") == ()


@given(ANYTHING, st.text(max_size=5))
def test_no_answer_to_the_question_for_sources_raises(document: object, host: str) -> None:
    read_sources(document, host)


def test_an_endpoint_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="tcp://10"):
        reachable("http://x", "h")
    assert reachable("ipc:///tmp/kv.sock", "h") == "ipc:///tmp/kv.sock"


@pytest.mark.parametrize("rank", ["9" * 5_000, "\u0665", "-1", "one", ""])
def test_what_is_no_rank_is_the_first(rank: str) -> None:
    (source,) = read_sources({rank: {"endpoint": "tcp://*:5557"}}, "h")
    assert source.rank == 0


def test_the_digits_of_a_port_are_those_of_zeromq() -> None:
    with pytest.raises(ValueError, match="is no endpoint"):
        reachable("tcp://h:\u0665\u0665", "h")
