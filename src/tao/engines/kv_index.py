"""Which blocks one engine core has in its cache, and how much of each session's chain of blocks that is.

A block's hash covers its whole prefix, so a session's context is a chain of hashes, and what is left of it is the longest
prefix of the chain whose blocks are all still there. Only what can be traced back to the first block of a prompt counts:
missing knowledge makes the answer smaller, never larger. Memory is bounded: beyond `blocks_max` everything is forgotten
and said so. It must not know bytes, sockets or what anybody does with the answer.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tao.engines.kv_unnamed import UnnamedBlocks
from tao.engines.kv_wire import AllCleared, BlocksRemoved, BlocksStored, KvEvent

BLOCKS_MAX = 1 << 20
"""Blocks of one engine core: 16.8 M tokens in blocks of 16."""

ATTENTION_KINDS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Groups whose blocks hold what their own tokens need; one state of a state-space group stands for many tokens."""

MEDIUM = "GPU"
_NOBODY, _SEVERAL = -1, -2


@dataclass(slots=True)
class _Chain:
    """A session's blocks from the first one on; the first `present` of them are in the cache."""

    number: int
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    present: int = 0


@dataclass(slots=True)
class Skipped:
    """Events that say nothing of the blocks that count, by why."""

    other_groups: int = 0
    other_media: int = 0
    other_block_sizes: int = 0
    orphans: int = 0  # blocks whose beginning was never seen


class BlockIndex:
    """The cache of one engine core, as its events tell. `was_given`: whether the engine was given a name; None: any was.
    `echoes`: whether it has used such a name; where it has not, `unnamed` are the blocks by which a request can be
    recognised (`adopt`). `echoes_others`: whether it has used a name that somebody else gave it.
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX, was_given: Callable[[str], bool] | None = None) -> None:
        self.blocks_max = blocks_max
        self.block_tokens: int | None = None
        self.overflows = 0
        self.skipped = Skipped()
        self.echoes = self.echoes_others = False
        self.unnamed = UnnamedBlocks(stored_since=self._stored_since)
        self._was_given = was_given or (lambda _: True)
        self._group: int | None = None
        self._slots: dict[int, int] = {}
        self._free = array("I")
        self._parents = array("Q")
        self._positions = array("I")
        self._owners = array("i")
        self._heard = array("d")
        self._chains: OrderedDict[str, _Chain] = OrderedDict()
        self._names: dict[int, str] = {}
        self._numbers = 0
        self._chained_blocks = 0
        self._changed: dict[str, None] = {}

    @property
    def blocks(self) -> int:
        """Blocks in the cache."""
        return len(self._slots)

    @property
    def sessions(self) -> int:
        """Sessions whose chain is known."""
        return len(self._chains)

    def apply(self, event: KvEvent, at: float = 0.0) -> None:
        """Take in what happened to the cache. `at`: when it was heard, for `unnamed`."""
        match event:
            case BlocksStored():
                self._stored(event, at)
            case BlocksRemoved():
                self._removed(event)
            case AllCleared():
                self.clear()

    def tokens(self, session: str) -> int | None:
        """Tokens of the session's context, from its beginning, that are in the cache; None where its chain is not known."""
        chain = self._chains.get(session)
        return None if chain is None else chain.present * (self.block_tokens or 0)

    def take_changed(self) -> dict[str, int | None]:
        """The sessions whose figure may be another one since the last call, with it."""
        changed, self._changed = self._changed, {}
        return {session: self.tokens(session) for session in changed}

    def adopt(self, session: str, last: int, blocks: int) -> bool:
        """The session's context is the chain of so many blocks that ends with `last`; False where it is not all there."""
        found = self._line(last, blocks, self._chains.get(session))
        if found is None:
            return False
        line, known = found
        chain = self._chain(session)
        for block in line[known:]:
            self._share(self._slots[block], chain.number)
        self._chained_blocks += len(line) - len(chain.hashes)
        chain.hashes, chain.present = line, blocks
        self._changed[session] = None
        self._bound_chains(session)
        return True

    def forget(self, session: str) -> None:
        """Drop a session's chain: it is over, or its context starts afresh."""
        chain = self._chains.pop(session, None)
        if chain is not None:
            self._chained_blocks -= len(chain.hashes)
            del self._names[chain.number]
            self._changed[session] = None

    def clear(self) -> None:
        """The cache is empty, or nothing is known of it any more. Sessions are not named one by one."""
        self._changed.clear()
        self._chains.clear()
        self._names.clear()
        self._chained_blocks = 0
        self.unnamed.clear()
        self._slots = {}
        for column in (self._free, self._parents, self._positions, self._owners, self._heard):
            del column[:]

    # --- stored -----------------------------------------------------------------------------------------------------

    def _stored(self, event: BlocksStored, at: float) -> None:
        if not self._counts(event):
            return
        if event.session is not None:
            self._note_name(event.session)
        if len(self._slots) + len(event.hashes) > self.blocks_max:
            self.overflows += 1
            self.clear()
            if len(event.hashes) > self.blocks_max:
                return
        position = self._position_after(event.parent)
        if position is None:
            self.skipped.orphans += len(event.hashes)
            if event.session is not None:
                self.forget(event.session)  # its context has gone on from something unknown
            self.unnamed.missed(at)
            return
        if event.session is None and not self.echoes and event.hashes:
            self.unnamed.stored(event, position, at)
        chain = None
        if event.session is not None:
            chain = self._chain(event.session)
            if not self._extend(chain, event, position):
                self.forget(event.session)
                chain = None
        number = _NOBODY if chain is None else chain.number
        parent = event.parent or 0
        for block in event.hashes:
            self._put(block, parent, position, number, at)
            parent = block
            position += 1
        if chain is not None and event.session is not None:
            self._recount(event.session, chain)
            self._bound_chains(event.session)

    def _note_name(self, name: str) -> None:
        """Engines that know no name but one in the body (SGLang) name the sessions of those clients only."""
        if self.echoes:
            return
        if self._was_given(name):
            self.echoes = True
            self.unnamed.clear()
        else:
            self.echoes_others = True

    def _counts(self, event: BlocksStored) -> bool:
        if event.medium != MEDIUM:
            self.skipped.other_media += 1
            return False
        if event.kind not in ATTENTION_KINDS or self._group not in {None, event.group}:
            self.skipped.other_groups += 1
            return False
        if self.block_tokens not in {None, event.block_tokens}:
            self.skipped.other_block_sizes += 1
            return False
        self._group, self.block_tokens = event.group, event.block_tokens
        return True

    def _position_after(self, parent: int | None) -> int | None:
        if parent is None:
            return 0
        slot = self._slots.get(parent)
        return None if slot is None else self._positions[slot] + 1

    def _chain(self, session: str) -> _Chain:
        chain = self._chains.get(session)
        if chain is None:
            chain = self._chains[session] = _Chain(self._numbers)
            self._names[self._numbers] = session
            self._numbers += 1
        else:
            self._chains.move_to_end(session)
        return chain

    def _extend(self, chain: _Chain, event: BlocksStored, position: int) -> bool:
        """Let the chain go through the stored blocks; False where what lies before them is not known to the end."""
        before = len(chain.hashes)
        if position and not (position <= before and chain.hashes[position - 1] == event.parent):
            found = self._line(event.parent or 0, position)
            if found is None:
                return False
            line, _ = found
            for block in line:
                self._share(self._slots[block], chain.number)
            chain.hashes, chain.present = line, position
        stored = array("Q", event.hashes)
        if chain.hashes[position : position + len(stored)] != stored:
            chain.hashes = chain.hashes[:position] + stored
        chain.present = min(chain.present, position)
        self._chained_blocks += len(chain.hashes) - before
        return True

    def _line(self, block: int, blocks: int, chain: _Chain | None = None) -> tuple[array[int], int] | None:
        """The chain of so many blocks that ends with `block`, from its first one on, and how many of them `chain` has in
        the cache too; None where a link is missing.
        """
        line = array("Q", bytes(8 * blocks))
        for position in range(blocks - 1, -1, -1):
            if chain is not None and position < chain.present and chain.hashes[position] == block:
                line[: position + 1] = chain.hashes[: position + 1]
                return line, position + 1
            slot = self._slots.get(block)
            if slot is None or self._positions[slot] != position:
                return None
            line[position] = block
            block = self._parents[slot]
        return line, 0

    def _put(self, block: int, parent: int, position: int, number: int, at: float) -> None:
        slot = self._slots.get(block)
        if slot is not None:
            self._share(slot, number)
            self._heard[slot] = at
        elif self._free:
            slot = self._slots[block] = self._free.pop()
            self._parents[slot], self._positions[slot], self._owners[slot] = parent, position, number
            self._heard[slot] = at
        else:
            self._slots[block] = len(self._parents)
            self._parents.append(parent)
            self._positions.append(position)
            self._owners.append(number)
            self._heard.append(at)

    def _stored_since(self, block: int, position: int, start: int, since: float) -> bool:
        """Whether all blocks from `start` up to `block`, at `position`, were heard since then."""
        while position >= start:
            slot = self._slots.get(block)
            if slot is None or self._positions[slot] != position or self._heard[slot] < since:
                return False
            block, position = self._parents[slot], position - 1
        return True

    def _share(self, slot: int, number: int) -> None:
        owner = self._owners[slot]
        if number not in {_NOBODY, owner}:
            self._owners[slot] = number if owner == _NOBODY else _SEVERAL

    def _recount(self, session: str, chain: _Chain) -> None:
        """How far the chain is there by now. Blocks that others have stored again are its own from here on, so that it is
        told when they go.
        """
        present = chain.present
        while present < len(chain.hashes) and (slot := self._slots.get(chain.hashes[present])) is not None:
            self._share(slot, chain.number)
            present += 1
        chain.present = present
        self._changed[session] = None

    def _bound_chains(self, latest: str) -> None:
        while self._chained_blocks > self.blocks_max:
            oldest = next(iter(self._chains))
            if oldest == latest:
                break  # one chain alone is never longer than the blocks are many
            self.forget(oldest)

    # --- removed ----------------------------------------------------------------------------------------------------

    def _removed(self, event: BlocksRemoved) -> None:
        if event.medium != MEDIUM or self._group not in {None, event.group}:
            return
        for block in event.hashes:
            slot = self._slots.pop(block, None)
            if slot is None:
                continue
            self._free.append(slot)
            position = self._positions[slot]
            for session in self._holders(self._owners[slot]):
                chain = self._chains[session]
                if position < chain.present and chain.hashes[position] == block:
                    chain.present = position
                    self._changed[session] = None

    def _holders(self, owner: int) -> Iterator[str]:
        """The sessions whose chain may go through a block with this owner."""
        if owner == _SEVERAL:
            yield from self._chains
        elif owner in self._names:
            yield self._names[owner]
