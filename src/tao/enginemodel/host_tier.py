"""Host memory behind the KV cache of a replica: evicted blocks go there, and come back when they are asked for.

Blocks are known by the identity of the prefix that ends with them; the one that was evicted longest ago goes first. A block
is in one place: loaded back, it has left. It must not know time: how long loading takes is the engine's affair.
"""

from __future__ import annotations

from collections import OrderedDict

from tao.enginemodel.chain import Chain


class HostTier:
    """Holds at most `capacity_blocks` blocks. It observes the KV cache: what is removed there comes here."""

    __slots__ = ("_block_tokens", "_blocks", "_capacity_blocks")

    def __init__(self, capacity_blocks: int, block_tokens: int) -> None:
        self._capacity_blocks = capacity_blocks
        self._block_tokens = block_tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()  # identities, longest evicted first

    def __len__(self) -> int:
        return len(self._blocks)

    def stored(self, chain: Chain, first: int, end: int, request_id: str) -> None:
        """What the KV cache stores is none of its affair."""

    def removed(self, chain: Chain, first: int, end: int) -> None:
        """Take in the evicted blocks [first, end) of a chain, its tail before its head."""
        blocks, size = self._blocks, self._block_tokens
        for index in range(end, first, -1):
            identity = chain.identity(index * size)
            blocks[identity] = None
            blocks.move_to_end(identity)
        while len(blocks) > self._capacity_blocks:
            blocks.popitem(last=False)

    def load(self, chain: Chain, first: int, end: int) -> int:
        """Hand back the blocks of a chain from `first` on that follow one another here, before `end`: how many."""
        blocks, size = self._blocks, self._block_tokens
        index = first
        while index < end:
            identity = chain.identity((index + 1) * size)
            if identity not in blocks:
                break
            del blocks[identity]
            index += 1
        return index - first

    def cleared(self) -> None:
        self._blocks.clear()
