"""The requests that decode, as one group that advances by whole numbers of steps in constant time.

Every decode step adds one token to every member, so a member needs no work until it leaves: a clock
counts steps, and a member is its clock time of finishing plus the residue of its context length modulo
the block size. Sums (context tokens, new blocks needed) follow in closed form. It knows no seconds and no
cache: it answers how much, the engine decides what to do about it.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tao.enginemodel.live import Live


class DecodeGroup:
    """Members that generate one token a step. `clock` counts steps; contexts are tokens."""

    __slots__ = ("_block_tokens", "_heap", "_residues", "_tickets", "clock", "context_tokens", "size")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._heap: list[
            tuple[int, int, Live]
        ] = []  # (clock at which it finishes, ticket, member); stale ones stay
        self._residues = [0] * block_tokens  # members by (context - clock) modulo the block size
        self._tickets = 0
        self.clock = 0
        self.size = 0
        self.context_tokens = 0  # attended by the next step, its own tokens included

    def join(self, live: Live) -> None:
        """Add a request that has generated at least one token and has more to generate."""
        context = live.prompt_tokens + live.generated
        self._tickets += 1
        live.ticket = self._tickets
        live.joined_at = self.clock
        heappush(self._heap, (self.clock + live.output_tokens - live.generated, live.ticket, live))
        self._residues[(context - self.clock) % self._block_tokens] += 1
        self.size += 1
        self.context_tokens += context

    def leave(self, live: Live) -> None:
        """Take a member out and settle its `generated`."""
        context = live.prompt_tokens + live.generated + self.clock - live.joined_at
        live.generated += self.clock - live.joined_at
        live.ticket = 0
        self._residues[(context - self.clock) % self._block_tokens] -= 1
        self.size -= 1
        self.context_tokens -= context

    def advance(self, steps: int) -> None:
        self.clock += steps
        self.context_tokens += steps * self.size

    def pop_finished(self) -> Live | None:
        """A member that has generated its last token, taken out of the group; in order of joining."""
        heap = self._heap
        while heap and heap[0][0] <= self.clock:
            _, ticket, live = heappop(heap)
            if live.ticket == ticket:
                self.leave(live)
                return live
        return None

    def steps_to_finish(self) -> int:
        """Steps until the first member finishes (the group must not be empty)."""
        heap = self._heap
        while heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return heap[0][0] - self.clock

    def blocks_needed_next(self) -> int:
        """New blocks that the next step needs."""
        return self._residues[(1 - self.clock) % self._block_tokens]

    def blocks_needed(self, first: int, end: int) -> int:
        """New blocks that the steps [first, end) from now need together."""
        size = self._block_tokens
        rounds, rest = divmod(end - first, size)
        if not rest:
            return rounds * self.size
        residues = self._residues
        last = (1 - self.clock - first) % size + 1
        least = last - rest
        if least >= 0:
            return rounds * self.size + sum(residues[least:last])
        return (
            rounds * self.size + sum(residues[:last]) + sum(residues[least:])
        )  # from the end: modulo the size

    def steps_within(self, blocks: int, steps_max: int) -> int:
        """Most steps (<= steps_max) for which `blocks` new blocks suffice."""
        size, members = self._block_tokens, self.size
        if (steps_max // size + 1) * members <= blocks:  # the usual case: far from running out
            return steps_max
        rounds, left = divmod(blocks, members)
        steps = rounds * size
        residues, first = self._residues, 1 - self.clock
        for step in range(size):
            left -= residues[(first - step) % size]
            if left < 0:
                break
            steps += 1
        return min(steps, steps_max)
