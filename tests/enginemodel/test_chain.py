"""Chains: content identity against plain lists of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.enginemodel import Chain

segments = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=6)


def tokens_of(chain: Chain) -> list[tuple[object, int]]:
    return [(key, i) for key, first, end in chain.slices(0, chain.tokens) for i in range(first, end)]


@given(first=segments, second=segments)
def test_shared_tokens_and_identities_follow_content(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    one, two = Chain.of(first), Chain.of(second)
    a, b = tokens_of(one), tokens_of(two)
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    # Segments (k, 3) + (k, 2) and (k, 5) differ from the fourth token on: offsets count within a segment.
    assert one.shared_tokens(two) == two.shared_tokens(one) == shared
    for upto in range(1, min(len(a), len(b)) + 1):
        assert (one.identity(upto) == two.identity(upto)) == (upto <= shared)


@given(base=segments, left=segments, right=segments)
def test_extending_one_chain_two_ways_keeps_all_three(
    base: list[tuple[int, int]], left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    start = Chain.of(base)
    one = start
    for segment in left:
        one = one.extended(*segment)
    two = start
    for segment in right:
        two = two.extended(*segment)
    for chain, expected in ((start, base), (one, base + left), (two, base + right)):
        fresh = Chain.of(expected)
        assert tokens_of(chain) == tokens_of(fresh)
        assert chain.tokens == fresh.tokens
        if fresh.tokens:
            assert chain.identity(chain.tokens) == fresh.identity(fresh.tokens)


def test_a_segment_needs_a_token() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Chain.of([("a", 0)])
    with pytest.raises(ValueError, match="at least one"):
        Chain.of([("a", 1)]).extended("b", 0)


def test_slices_cut_segments() -> None:
    chain = Chain.of([("a", 3), ("b", 4)])
    assert chain.slices(2, 5) == [("a", 2, 3), ("b", 0, 2)]
    assert repr(chain) == "Chain(2 segments, 7 tokens)"
