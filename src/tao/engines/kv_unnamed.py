"""Blocks that were stored without anybody's name, in the pieces in which they came: what one request may have stored.

A request stores from a block of its prompt to a block of its output, in pieces that go on from one another; pieces of
several requests may go on from the same one, from its end or from where they begin to differ. Where it began and ended, and
since when it was heard, tells which last block is its own, if there is only one such. Bounded: beyond `pieces_max` the
oldest goes, and nobody is recognised who may have stored it. It must not know sessions, nor whether a block is still there.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tao.engines.kv_wire import BlocksStored

PIECES_MAX = 1 << 16


@dataclass(slots=True)
class _Piece:
    """Blocks `start` up to, not including, `end` of a prompt, behind `parent`, heard at `at` for the last time."""

    start: int
    end: int
    parent: int | None
    last: int
    at: float


class UnnamedBlocks:
    """The pieces of one engine core. Times are of any clock that does not go back.

    `stored_since`: whether all blocks from a position up to a block, at another position, were heard since a time.
    """

    def __init__(
        self,
        pieces_max: int = PIECES_MAX,
        stored_since: Callable[[int, int, int, float], bool] = lambda *_: False,
    ) -> None:
        self._stored_since = stored_since
        self._pieces_max = pieces_max
        self._pieces: dict[tuple[int, int], _Piece] = {}  # by last block and start, least lately heard first
        self._ending_with: dict[int, list[_Piece]] = {}
        self._ending_at: dict[int, list[_Piece]] = {}
        self._latest: _Piece | None = None
        self._incomplete_at = float("-inf")

    def __len__(self) -> int:
        return len(self._pieces)

    def stored(self, event: BlocksStored, start: int, at: float) -> None:
        """Blocks without a name were stored at position `start`, heard at `at`."""
        piece = _Piece(start, start + len(event.hashes), event.parent, event.hashes[-1], at)
        before = self._latest
        if before is not None and before.at == at and before.last == event.parent and before.end == start:
            # Some engines tell each block by itself. Nobody else goes on from what is stored in the same step.
            self._drop(before)
            piece.start, piece.parent = before.start, before.parent
        known = self._pieces.get((piece.last, piece.start))
        if known is not None:  # computed by two at once, or again
            self._drop(known)
        self._pieces[piece.last, piece.start] = self._latest = piece
        self._ending_with.setdefault(piece.last, []).append(piece)
        self._ending_at.setdefault(piece.end, []).append(piece)
        if len(self._pieces) > self._pieces_max:
            self._drop(next(iter(self._pieces.values())))
            self.missed(at)

    def missed(self, at: float) -> None:
        """Blocks were stored of which is not known where they belong: whoever stored them cannot be recognised."""
        self._incomplete_at = at

    def is_complete(self, since: float) -> bool:
        """Whether all that was stored since then is known, or dropped as nobody's."""
        return self._incomplete_at < since

    def stored_by(self, since: float, starts: Collection[int], ends: Iterable[int]) -> dict[int, int]:
        """What a request may have stored that began then, from one of the blocks `starts` to one of `ends`: the last blocks,
        with the end of each. Two are enough to know that nobody can tell, so no more are looked for.
        """
        told: dict[int, int] = {}
        if not self.is_complete(since):
            return told
        for piece in (piece for end in ends for piece in self._ending_at.get(end, ())):
            if self._begins(piece, since, starts):
                told[piece.last] = piece.end
                if len(told) > 1:
                    break
        return told

    def forget_before(self, since: float) -> None:
        """Drop the pieces that were heard before: who may have stored them is gone."""
        while self._pieces:
            oldest = next(iter(self._pieces.values()))
            if oldest.at >= since:
                return
            self._drop(oldest)

    def clear(self) -> None:
        """Nothing is known any more."""
        for known in (self._pieces, self._ending_with, self._ending_at):
            known.clear()
        self._latest = None

    def _begins(self, piece: _Piece, since: float, starts: Collection[int]) -> bool:
        """Whether a line of pieces leads from one of the blocks `starts` to this one, all heard since then."""
        asked, first = [piece], min(starts)
        seen: set[tuple[int, int]] = set()  # lines that part may meet again, at each block where pieces begin
        while asked:
            piece = asked.pop()
            if (piece.last, piece.start) in seen:
                continue
            seen.add((piece.last, piece.start))
            if piece.at < since or piece.start < first:
                continue
            if piece.start in starts:
                return True
            if piece.parent is None:
                continue
            before = [each for each in self._ending_with.get(piece.parent, ()) if each.end == piece.start]
            asked += before
            if not before and self._stored_since(piece.parent, piece.start - 1, first, since):
                return True  # it goes on from the middle of others' pieces, as far as the prompts are alike
        return False

    def _drop(self, piece: _Piece) -> None:
        del self._pieces[piece.last, piece.start]
        _unlist(self._ending_with, piece.last, piece)
        _unlist(self._ending_at, piece.end, piece)


def _unlist(listed: dict[int, list[_Piece]], key: int, piece: _Piece) -> None:
    rest = [each for each in listed[key] if each is not piece]
    if rest:
        listed[key] = rest
    else:
        del listed[key]
