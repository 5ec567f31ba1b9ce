"""Blocks that nobody named: which last block a request may have stored, and what of its chain a session takes over."""

from tao.engines.kv_index import BlockIndex
from tao.engines.kv_unnamed import UnnamedBlocks
from tao.engines.kv_wire import AllCleared, BlocksRemoved, BlocksStored

ANY = range(200)


def put(*hashes: int, after: int | None = None, session: str | None = None) -> BlocksStored:
    return BlocksStored(hashes, after, 16, 0, "full_attention", "GPU", session)


def test_pieces_go_on_where_one_ended() -> None:
    index = BlockIndex()
    index.apply(put(1, 2, 3), 1.0)
    index.apply(put(11, 12), 1.5)
    index.apply(put(4, after=3), 2.0)
    index.apply(put(13, after=12), 2.5)
    stored_by = index.unnamed.stored_by
    assert stored_by(0.0, [0], [4]) == {4: 4}
    assert stored_by(0.0, [0], [3]) == {3: 3, 13: 3}
    assert stored_by(1.2, [0], ANY) == {12: 2, 13: 3}, "heard from its first block on"
    assert stored_by(0.0, [3], [4]) == {4: 4}, "or by one that had the beginning from the cache"
    assert stored_by(0.0, [2], ANY) == {13: 3}
    assert stored_by(0.0, [1], ANY) == {}, "no piece begins in the middle of one"


def test_what_branches_off_belongs_to_either() -> None:
    index = BlockIndex()
    index.apply(put(1, 2), 1.0)
    index.apply(put(3, after=2), 2.0)
    index.apply(put(9, after=2), 3.0)
    assert index.unnamed.stored_by(0.0, [0], [3]) == {3: 3, 9: 3}
    assert index.unnamed.stored_by(2.5, [2], [3]) == {9: 3}


def test_blocks_that_two_computed_at_once_are_of_both() -> None:
    index = BlockIndex()
    index.apply(put(1, 2, 3), 1.0)
    index.apply(put(1, 2), 2.0)  # in other pieces
    index.apply(put(3, after=2), 3.0)
    index.apply(put(4, after=3), 4.0)
    index.apply(put(9, after=3), 5.0)
    assert index.unnamed.stored_by(0.5, [0], [4]) == {4: 4, 9: 4}
    assert index.unnamed.stored_by(1.5, [0], [4]) == {4: 4, 9: 4}


class Questions(list[int]):
    """Blocks where a request may have begun, and how often it was asked for one: the steps that a search has taken."""

    def __contains__(self, block: object) -> bool:
        self.asked = getattr(self, "asked", 0) + 1
        assert self.asked <= 500, "the search takes another way through every piece"
        return super().__contains__(block)


def test_what_was_told_in_pieces_of_two_sizes_is_searched_piece_by_piece() -> None:
    """Each boundary is reached by two ways, and 40 of them by as many as nobody can go through."""
    unnamed = UnnamedBlocks()
    for pair in range(40):
        first, parent = 2 * pair + 1, 2 * pair or None
        at = float(3 * pair)
        unnamed.stored(put(first, first + 1, after=parent), 2 * pair, at)
        unnamed.stored(put(first, after=parent), 2 * pair, at + 1)
        unnamed.stored(put(first + 1, after=first), 2 * pair + 1, at + 2)
    assert len(unnamed) == 120
    assert unnamed.stored_by(-1.0, Questions([0]), [80]) == {80: 80}
    assert unnamed.stored_by(1.5, Questions([0]), [80]) == {}, "the first two blocks were heard before"


def test_an_engine_that_tells_each_block_by_itself() -> None:
    index = BlockIndex()
    for number in range(1, 101):
        index.apply(put(number, after=number - 1 or None), 1.0)
    index.apply(put(101, after=100), 2.0)
    assert len(index.unnamed) == 2
    assert index.unnamed.stored_by(0.0, [0], [101]) == {101: 101}


def test_a_beginning_that_was_never_seen_leaves_nothing_to_tell() -> None:
    index = BlockIndex()
    index.apply(put(1, 2), 1.0)
    index.apply(put(8, after=7), 2.0)
    assert index.unnamed.stored_by(1.0, [0], ANY) == {}
    index.apply(put(31, 32), 3.0)
    assert index.unnamed.stored_by(2.5, [0], ANY) == {32: 2}, "for those who came later"


def test_an_engine_that_names_sessions_is_not_guessed_at() -> None:
    index = BlockIndex()
    index.apply(put(1, 2), 1.0)
    index.apply(put(3, after=2, session="s"), 2.0)
    index.apply(put(4, after=3), 3.0)
    assert index.echoes
    assert len(index.unnamed) == 0


def test_an_emptied_cache_has_none() -> None:
    index = BlockIndex()
    index.apply(put(1, 2), 1.0)
    index.apply(AllCleared(), 1.0)
    index.apply(put(3, after=2), 1.0)
    assert index.unnamed.stored_by(0.0, [0], ANY) == {}


def test_pieces_are_bounded_and_what_went_is_known_to_be_missing() -> None:
    unnamed = UnnamedBlocks(pieces_max=3)
    for number in range(1, 5):
        unnamed.stored(put(number), 0, float(number))
    assert len(unnamed) == 3
    assert unnamed.stored_by(3.5, [0], [1]) == {}
    unnamed.forget_before(4.0)
    assert len(unnamed) == 1
    unnamed.stored(put(9), 0, 5.0)
    assert unnamed.stored_by(4.5, [0], [1]) == {9: 1}


# --- taken over by a session ------------------------------------------------------------------------------------------


def test_an_adopted_chain_is_followed_as_any_other() -> None:
    index = BlockIndex()
    index.apply(put(1, 2, 3))
    assert index.adopt("s", 3, 3)
    assert index.take_changed() == {"s": 48}
    index.apply(BlocksRemoved((2,), 0, "GPU"))
    assert index.take_changed() == {"s": 16}
    index.apply(put(2, 3, after=1))
    index.apply(put(4, after=3))
    assert index.adopt("s", 4, 4)
    assert index.tokens("s") == 64
    index.apply(BlocksRemoved((4,), 0, "GPU"))
    assert index.tokens("s") == 48


def test_a_chain_with_a_missing_link_is_not_adopted() -> None:
    index = BlockIndex()
    index.apply(put(1, 2, 3))
    index.apply(BlocksRemoved((2,), 0, "GPU"))
    assert not index.adopt("s", 3, 3)
    assert index.tokens("s") is None
    assert not index.adopt("s", 99, 1)


def test_two_sessions_may_share_a_beginning() -> None:
    index = BlockIndex()
    index.apply(put(1, 2, 3))
    index.apply(put(9, after=2))
    assert index.adopt("a", 3, 3)
    assert index.adopt("b", 9, 3)
    index.apply(BlocksRemoved((2,), 0, "GPU"))
    assert (index.tokens("a"), index.tokens("b")) == (16, 16)


def test_adopting_again_and_again_is_bounded() -> None:
    index = BlockIndex(blocks_max=64)
    for number in range(100):
        parent = None if not number % 16 else number
        index.apply(put(number + 1, after=parent))
        index.adopt(f"s{number // 16}", number + 1, number % 16 + 1)
        assert index._chained_blocks == sum(len(chain.hashes) for chain in index._chains.values()) <= 64
