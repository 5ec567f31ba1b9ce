"""The index of blocks: chains of sessions, evictions, what does not count, bounds; against a cache that is modelled."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.engines.kv_index import BlockIndex
from tao.engines.kv_wire import AllCleared, BlocksRemoved, BlocksStored


def put(*hashes: int, after: int | None = None, session: str | None = "s", **more: object) -> BlocksStored:
    fields = {"block_tokens": 16, "group": 0, "kind": "full_attention", "medium": "GPU", **more}
    return BlocksStored(hashes, after, session=session, **fields)  # type: ignore[arg-type]


def drop(*hashes: int, group: int = 0, medium: str = "GPU") -> BlocksRemoved:
    return BlocksRemoved(hashes, group, medium)


@pytest.fixture
def index() -> BlockIndex:
    return BlockIndex()


def test_a_session_grows_block_by_block(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3))
    index.apply(put(4, after=3))
    assert index.tokens("s") == 64
    assert index.take_changed() == {"s": 64}
    assert index.take_changed() == {}
    assert (index.blocks, index.sessions) == (4, 1)


def test_what_counts_is_the_prefix_that_is_left(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3, 4))
    index.apply(drop(4))
    assert index.tokens("s") == 48
    index.apply(drop(2))
    assert index.tokens("s") == 16
    index.apply(drop(3))
    assert index.tokens("s") == 16
    index.apply(put(2, 3, after=1))  # computed again
    assert index.tokens("s") == 48
    index.apply(drop(1))
    assert index.tokens("s") == 0


def test_sessions_that_share_a_beginning(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3, session="a"))
    index.apply(put(7, after=2, session="b"))
    index.apply(put(8, 9, after=2, session=None))
    assert (index.tokens("a"), index.tokens("b")) == (48, 48)
    index.take_changed()
    index.apply(drop(3))
    assert index.take_changed() == {"a": 32}
    index.apply(drop(2))
    assert index.take_changed() == {"a": 16, "b": 16}


@pytest.mark.parametrize("other", ["b", None], ids=["another's", "nobody's"])
def test_blocks_that_others_have_stored_again_are_missed_when_they_go(
    index: BlockIndex, other: str | None
) -> None:
    index.apply(put(1, 2, 3, session="a"))
    index.apply(drop(3, 2))
    index.apply(put(2, 9, after=1, session=other))
    index.apply(put(3, after=2, session="a"))
    assert index.tokens("a") == 48
    index.apply(drop(3, 2))
    assert index.tokens("a") == 16


def test_a_history_that_was_cut_or_edited_is_another_chain(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3, 4))
    index.apply(put(5, after=1))
    assert index.tokens("s") == 32
    index.apply(drop(4))  # belongs to it no more
    assert index.tokens("s") == 32
    index.apply(put(11, 12))
    assert index.tokens("s") == 32
    index.apply(drop(1))
    assert index.tokens("s") == 32


def test_a_report_of_reused_blocks_cuts_nothing_off(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3, 4))
    index.apply(put(1, 2))
    assert index.tokens("s") == 64


def test_blocks_whose_beginning_was_never_seen_are_no_evidence(index: BlockIndex) -> None:
    index.apply(put(5, 6, after=4))
    assert index.tokens("s") is None
    assert (index.blocks, index.skipped.orphans) == (0, 2)
    index.apply(put(1, 2))
    index.apply(put(9, after=8))
    assert index.tokens("s") is None  # its context has gone on from something unknown
    assert index.take_changed() == {"s": None}


def test_a_chain_through_a_hole_is_not_known(index: BlockIndex) -> None:
    index.apply(put(1, 2, 3, session="a"))
    index.apply(drop(2))
    index.apply(put(4, after=3, session="b"))
    assert index.tokens("b") is None


@pytest.mark.parametrize(
    ("event", "skipped"),
    [
        (put(7, 8, group=1), "other_groups"),
        (put(7, 8, kind="mamba"), "other_groups"),
        (put(7, 8, kind="sliding_window"), "other_groups"),
        (put(7, 8, medium="CPU"), "other_media"),
        (put(7, 8, block_tokens=4), "other_block_sizes"),
    ],
)
def test_what_does_not_count(index: BlockIndex, event: BlocksStored, skipped: str) -> None:
    index.apply(put(1, 2))
    index.apply(event)
    assert index.tokens("s") == 32
    assert index.blocks == 2
    assert getattr(index.skipped, skipped) == 1


def test_removals_of_other_groups_and_media_with_the_same_hash(index: BlockIndex) -> None:
    index.apply(put(1, 2))
    index.apply(drop(1, group=1))
    index.apply(drop(1, medium="CPU"))
    assert index.tokens("s") == 32


def test_the_group_that_counts_need_not_be_the_first(index: BlockIndex) -> None:
    index.apply(put(1, 2, group=0, kind="mamba"))
    index.apply(put(1, 2, group=2))
    index.apply(drop(2, group=0))
    assert index.tokens("s") == 32


def test_a_cleared_cache_has_nothing(index: BlockIndex) -> None:
    index.apply(put(1, 2))
    index.apply(AllCleared())
    assert (index.tokens("s"), index.blocks, index.sessions, index.take_changed()) == (None, 0, 0, {})
    index.apply(put(1, 2))
    assert index.tokens("s") == 32


def test_a_forgotten_session_is_not_held_by_its_blocks(index: BlockIndex) -> None:
    index.apply(put(1, 2))
    index.forget("s")
    index.forget("s")
    index.apply(drop(1))
    assert index.take_changed() == {"s": None}


def test_beyond_the_bound_all_is_forgotten() -> None:
    index = BlockIndex(blocks_max=4)
    index.apply(put(1, 2, 3))
    index.apply(put(11, 12, session="t"))
    assert (index.blocks, index.overflows, index.tokens("s"), index.tokens("t")) == (2, 1, None, 32)
    index.apply(put(*range(100, 105)))
    assert (index.blocks, index.overflows) == (0, 2)


def test_chains_are_bounded_too() -> None:
    index = BlockIndex(blocks_max=10)
    index.apply(put(1, 2, 3, 4, session="a"))
    index.apply(put(5, after=4, session="b"))
    index.apply(put(6, after=4, session="c"))
    assert (index.tokens("a"), index.tokens("b"), index.tokens("c")) == (None, 80, 80)


# --- against a modelled cache ------------------------------------------------------------------------------------------


class Cache:
    """Blocks by content, shared, least recently used first, tails before heads: what an engine does, slowly."""

    def __init__(self, capacity: int, index: BlockIndex) -> None:
        self.capacity = capacity
        self.index = index
        self.blocks: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def run(self, session: str, content: tuple[int, ...], chunk: int) -> None:
        prefixes = [content[: end + 1] for end in range(len(content))]
        cached = 0
        while cached < len(prefixes) and prefixes[cached] in self.blocks:
            cached += 1
        for prefix in reversed(prefixes[:cached]):
            self.blocks.move_to_end(prefix)
        for start in range(cached, len(prefixes), chunk):
            new = prefixes[start : start + chunk]
            for prefix in new:
                self.blocks[prefix] = None
                self.blocks.move_to_end(prefix)
            parent = hash(prefixes[start - 1]) & (2**64 - 1) if start else None
            self.index.apply(put(*(hash(p) & (2**64 - 1) for p in new), after=parent, session=session))
        for prefix in reversed(prefixes):
            self.blocks.move_to_end(prefix)
        while len(self.blocks) > self.capacity:
            victim, _ = self.blocks.popitem(last=False)
            self.index.apply(drop(hash(victim) & (2**64 - 1)))

    def held(self, content: tuple[int, ...]) -> int:
        count = 0
        while count < len(content) and content[: count + 1] in self.blocks:
            count += 1
        return count


TURNS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 6), st.integers(1, 5), st.integers(1, 3)), max_size=30
)


@given(TURNS, st.integers(6, 20))
def test_never_more_than_the_cache_holds_and_all_of_it_after_a_turn(
    turns: list[tuple[str, int, int, int]], capacity: int
) -> None:
    index = BlockIndex()
    cache = Cache(capacity, index)
    contexts: dict[str, tuple[int, ...]] = {}
    for number, (session, kept, more, chunk) in enumerate(turns):
        before = contexts.get(session, (0, 0))  # all begin with the same two blocks
        grown = before if kept > 3 else before[: 1 + kept]
        context = (*grown, *range(100 * number + 10, 100 * number + 10 + more))[:capacity]
        contexts[session] = context
        cache.run(session, context, chunk)
        for name, content in contexts.items():
            told = index.tokens(name)
            assert told is None or told <= 16 * cache.held(content)
        assert index.blocks == len(cache.blocks)
        if index.tokens(session) is not None:
            assert index.tokens(session) == 16 * cache.held(context)
