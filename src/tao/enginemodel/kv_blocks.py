"""The KV blocks of one replica: how many are empty, which are cached, and who holds them.

Blocks are counted, not numbered. A request holds the cached blocks of its path and, beyond them, blocks
of its own: those of a prompt not yet computed, of its output, and its last, partly filled one. It must
not know time or steps.
"""

from __future__ import annotations

from tao.enginemodel.host_tier import HostTier
from tao.enginemodel.live import Live
from tao.enginemodel.prefix_cache import BlockObserver, PrefixCache


class KvBlocks:
    """`free` blocks are empty; idle cached ones come on top (`available`). `host_blocks`: of host memory behind them."""

    __slots__ = ("_host", "_size", "cache", "free", "total")

    def __init__(
        self, total: int, block_tokens: int, observer: BlockObserver | None, host_blocks: int = 0
    ) -> None:
        self.total = total
        self.free = total
        self._host = HostTier(host_blocks, block_tokens) if host_blocks else None
        self.cache = PrefixCache(block_tokens, [one for one in (self._host, observer) if one is not None])
        self._size = block_tokens

    def available(self) -> int:
        return self.free + self.cache.idle_blocks

    def take(self, blocks: int) -> None:
        """Take blocks, evicting idle ones where no empty ones are left; there must be as many."""
        left = self.free - blocks
        if left < 0:
            self.cache.evict(-left)
            left = 0
        self.free = left

    def admit(self, live: Live, target: int) -> bool:
        """Hold what is cached of the first `target` tokens (never the last one) and blocks for the rest.

        False, and no change, where there are not enough. Sets `target`, `computed`, `reloaded_tokens` and `run` of the
        request.
        """
        size = self._size
        run, matched, idle = self.cache.match(live.chain, (target - 1) // size)
        needed = -(-target // size) - matched
        if needed + idle > self.free + self.cache.idle_blocks:
            return False
        live.run = self.cache.pin(run, matched)
        live.target = target
        live.computed = matched * size
        if self._host is not None:
            live.reloaded_tokens = self._host.load(live.chain, matched, (target - 1) // size) * size
            live.computed += live.reloaded_tokens
        self.take(needed)
        return True

    def store(self, live: Live, tokens: int) -> None:
        """Cache the full blocks of the first `tokens` tokens, which are computed."""
        full = tokens // self._size
        if full > live.run.end:
            live.run, duplicates = self.cache.extend(live.run, live.chain, full, live.request.id)
            self.free += duplicates

    def may_be_cached(self, live: Live) -> bool:
        """Whether the block behind what the request holds is cached already (by another request, meanwhile)."""
        children = live.run.children
        return bool(children) and live.chain.identity((live.run.end + 1) * self._size) in children

    def release_prefilling(self, live: Live) -> None:
        """Give up the blocks of a request whose prompt is being computed."""
        self.free += -(-live.target // self._size) - live.run.end
        self._unpin(live)

    def release_decoding(self, live: Live, tokens_in_step: int) -> None:
        """Cache what a request has computed and give up the rest, with the block of a step in progress."""
        computed = live.prompt_tokens + live.generated - 1  # the last token's KV is never computed
        self.free += -(-(computed + tokens_in_step) // self._size) - computed // self._size
        self.store(live, computed)
        self._unpin(live)

    def clear(self) -> None:
        """Empty the cache; no block may be in use."""
        self.free += self.cache.idle_blocks
        self.cache.clear()

    def _unpin(self, live: Live) -> None:
        self.cache.release(live.run)
        live.run = self.cache.root
