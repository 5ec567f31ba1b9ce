"""Content of a prompt as runs of tokens, so that a prompt of 100,000 tokens costs a few integers.

A chain is a sequence of segments (key, length). Token i of a segment is the pair (key, i): two chains
share a prefix as far as these pairs agree, block by block. Chains that extend one another share their
storage, and the question "do these two agree up to token x" costs a binary search over segments, whatever
x is. What lives here knows content only: no blocks in use, no time, no engine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import TypeAlias

Segment: TypeAlias = tuple[Hashable, int]
"""(key of the content, length in tokens >= 1)."""


class Chain:
    """An immutable sequence of segments; `extended` makes a longer one in constant time.

    Three chains made from one another hold one set of lists: a chain is a view of the first `segments`
    entries. Identities are 64-bit hashes of content; two different prefixes are taken for equal with
    probability 2**-64.
    """

    __slots__ = ("_ends", "_identities", "_keys", "segments", "tokens")

    def __init__(
        self, keys: list[Hashable], ends: list[int], identities: list[int], segments: int, tokens: int
    ) -> None:
        """For this module; others build chains by `of` and `extended`."""
        self._keys = keys
        self._ends = ends  # cumulative tokens at the end of each segment
        self._identities = identities  # identity of the prefix that ends with each segment
        self.segments = segments
        self.tokens = tokens

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Chain:
        """Build from (key, tokens) pairs. Raises ValueError for a length below 1."""
        keys: list[Hashable] = []
        ends: list[int] = []
        identities: list[int] = []
        end = identity = 0
        for key, tokens in segments:
            if tokens < 1:
                raise ValueError(f"segment {key!r} has {tokens} tokens; a segment needs at least one")
            end += tokens
            identity = hash((identity, key, tokens))
            keys.append(key)
            ends.append(end)
            identities.append(identity)
        return cls(keys, ends, identities, len(keys), end)

    def extended(self, key: Hashable, tokens: int) -> Chain:
        """This chain and one more segment. Raises ValueError for a length below 1."""
        if tokens < 1:
            raise ValueError(f"segment {key!r} has {tokens} tokens; a segment needs at least one")
        count, end = self.segments, self.tokens + tokens
        keys, ends, identities = self._keys, self._ends, self._identities
        if count < len(keys) and not (keys[count] == key and ends[count] == end):
            # Somebody else extended the shared lists another way: part from them.
            keys, ends, identities = keys[:count], ends[:count], identities[:count]
        if count == len(keys):
            keys.append(key)
            ends.append(end)
            identities.append(hash((identities[-1] if count else 0, key, tokens)))
        return Chain(keys, ends, identities, count + 1, end)

    def identity(self, tokens: int) -> int:
        """Identity of the first `tokens` tokens (1 <= tokens <= self.tokens): equal for equal content."""
        ends = self._ends
        index = bisect_left(ends, tokens, 0, self.segments)
        if ends[index] == tokens:
            return self._identities[index]
        if index == 0:
            return hash((0, self._keys[0], tokens))
        return hash((self._identities[index - 1], self._keys[index], tokens - ends[index - 1]))

    def shared_tokens(self, other: Chain) -> int:
        """Length of the longest common prefix, in tokens."""
        mine, theirs = self._identities, other._identities
        low, high = 0, min(self.segments, other.segments)
        if mine is theirs:
            low = high
        while low < high:  # segments before `low` agree; `high` is the first that may not
            middle = (low + high) // 2
            if mine[middle] == theirs[middle]:
                low = middle + 1
            else:
                high = middle
        shared = self._ends[low - 1] if low else 0
        if low < self.segments and low < other.segments and self._keys[low] == other._keys[low]:
            shared = min(self._ends[low], other._ends[low])
        return shared

    def slices(self, start: int, end: int) -> list[tuple[Hashable, int, int]]:
        """The tokens [start, end) as (key, first offset, end offset) triples."""
        found: list[tuple[Hashable, int, int]] = []
        index = bisect_left(self._ends, start + 1, 0, self.segments)
        position = start
        while position < end and index < self.segments:
            first = self._ends[index - 1] if index else 0
            upto = min(self._ends[index], end)
            found.append((self._keys[index], position - first, upto - first))
            position = upto
            index += 1
        return found

    def __repr__(self) -> str:
        return f"Chain({self.segments} segments, {self.tokens} tokens)"
