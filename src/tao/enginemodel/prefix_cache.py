"""The prefix cache of one replica: a radix tree whose edges are runs of KV blocks.

It does what a block-by-block cache with reference counts and an LRU list does (content-keyed full blocks,
shared between requests, least recently released first, tails before heads), at a cost that depends on the
number of runs in a prompt's path (a shared system prompt and one's own conversation: two), not on the
number of blocks. It counts the blocks it holds; how many blocks exist, and when, is the engine's
business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from tao.enginemodel.chain import Chain


class BlockObserver(Protocol):
    """Told of every change of the cached content, as runs of blocks [first, end) of a chain."""

    def stored(self, chain: Chain, first: int, end: int, request_id: str) -> None: ...

    def removed(self, chain: Chain, first: int, end: int) -> None: ...

    def cleared(self) -> None: ...


class Run:
    """Consecutive cached blocks [start, end) of a chain, without a branch inside."""

    __slots__ = ("chain", "children", "end", "end_identity", "first_identity", "parent", "pins", "start")

    def __init__(self, parent: Run | None, chain: Chain, start: int, end: int, first_identity: int) -> None:
        self.parent = parent
        self.chain = chain
        self.start = start
        self.end = end
        self.first_identity = first_identity  # key in the parent's children
        self.end_identity = 0  # 0: to be computed
        self.pins = 0  # requests whose path leads through this run; never below any child's
        self.children: dict[int, Run] = {}


class PrefixCache:
    """Runs of blocks by content. `idle_blocks` are those no request pins: they may be evicted."""

    __slots__ = ("_block_tokens", "_idle", "_observers", "blocks", "idle_blocks", "root")

    def __init__(self, block_tokens: int, observers: Sequence[BlockObserver] = ()) -> None:
        self._block_tokens = block_tokens
        self._observers = tuple(observers)
        self.root = Run(None, Chain.of(()), 0, 0, 0)
        # Order of release, tail before head. A parent is released with or after its children, so the
        # first entry is always a leaf.
        self._idle: OrderedDict[Run, None] = OrderedDict()
        self.blocks = 0
        self.idle_blocks = 0

    def match(self, chain: Chain, blocks_max: int) -> tuple[Run, int, int]:
        """Longest cached prefix of at most `blocks_max` blocks: (deepest run, blocks, idle blocks among
        them).
        """
        run, matched, idle = self.root, 0, 0
        size = self._block_tokens
        while matched < blocks_max:
            child = run.children.get(chain.identity((matched + 1) * size))
            if child is None:
                break
            end = child.end
            if not child.end_identity:
                child.end_identity = child.chain.identity(end * size)
            if end > blocks_max or chain.identity(end * size) != child.end_identity:
                end = min(blocks_max, child.end, chain.shared_tokens(child.chain) // size)
            if child.pins == 0:
                idle += end - matched
            run, matched = child, end
            if end < child.end:
                break
        return run, matched, idle

    def pin(self, run: Run, blocks: int) -> Run:
        """Hold the path down to `blocks` blocks, as found by `match`; cuts a run that is matched in part."""
        if blocks < run.end:
            run = self._split(run, blocks)
        node = run
        while node.parent is not None:
            self._pin_one(node)
            node = node.parent
        return run

    def extend(self, run: Run, chain: Chain, end: int, request_id: str) -> tuple[Run, int]:
        """Add the computed blocks up to `end` below a pinned run: (new deepest run, blocks that were there
        already).
        """
        start, duplicates, size = run.end, 0, self._block_tokens
        while start < end:
            if run.pins == 1 and not run.children:  # ours alone, and a leaf: it grows in place
                run.chain = chain
                run.end = end
                run.end_identity = 0
                self._added(chain, start, end, request_id)
                break
            identity = chain.identity((start + 1) * size)
            child = run.children.get(identity)
            if child is None:
                child = run.children[identity] = Run(run, chain, start, end, identity)
                child.pins = 1
                self._added(chain, start, end, request_id)
                return child, duplicates
            # Another request computed the same content meanwhile: share its blocks.
            shared = min(end, child.end, chain.shared_tokens(child.chain) // size)
            if shared < child.end:
                child = self._split(child, shared)
            self._pin_one(child)
            duplicates += shared - start
            run, start = child, shared
        return run, duplicates

    def release(self, run: Run) -> None:
        """Give up the path that ends in `run`; what nobody else pins becomes idle, tail first."""
        node = run
        while node.parent is not None:
            node.pins -= 1
            if node.pins == 0:
                self._idle[node] = None
                self.idle_blocks += node.end - node.start
            node = node.parent

    def evict(self, blocks: int) -> None:
        """Drop `blocks` idle blocks (there must be as many), least recently released first."""
        assert blocks <= self.idle_blocks, "eviction of blocks that are in use"
        self.blocks -= blocks
        self.idle_blocks -= blocks
        idle = self._idle
        while blocks > 0:
            run = next(iter(idle))
            start, end = run.start, run.end
            keep = end - blocks
            if keep > start:  # the usual case: its tail is enough
                run.end = keep
                run.end_identity = 0
                for observer in self._observers:
                    observer.removed(run.chain, keep, end)
                return
            blocks -= end - start
            del idle[run]
            assert run.parent is not None
            assert not run.children
            del run.parent.children[run.first_identity]
            for observer in self._observers:
                observer.removed(run.chain, start, end)

    def clear(self) -> None:
        """Forget everything; nothing may be pinned."""
        assert self.idle_blocks == self.blocks, "clearing a cache that is in use"
        self.root.children.clear()
        self._idle.clear()
        self.blocks = self.idle_blocks = 0
        for observer in self._observers:
            observer.cleared()

    def _added(self, chain: Chain, start: int, end: int, request_id: str) -> None:
        self.blocks += end - start
        for observer in self._observers:
            observer.stored(chain, start, end, request_id)

    def _pin_one(self, run: Run) -> None:
        if run.pins == 0:
            del self._idle[run]
            self.idle_blocks -= run.end - run.start
        run.pins += 1

    def _split(self, run: Run, at: int) -> Run:
        """Cut a run into two at block `at`; returns the upper part, which is about to be pinned."""
        assert run.parent is not None
        size = self._block_tokens
        upper = Run(run.parent, run.chain, run.start, at, run.first_identity)
        upper.pins = run.pins
        run.parent.children[run.first_identity] = upper
        run.parent = upper
        run.start = at
        run.first_identity = run.chain.identity((at + 1) * size)
        upper.children[run.first_identity] = run
        if upper.pins == 0:  # released together with its tail, hence right behind it
            self._idle[upper] = None
        return upper
