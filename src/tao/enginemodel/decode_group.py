"""The requests that decode, as one group that advances by whole numbers of steps in constant time.

Every decode step adds one token to every member, so a member needs no work until it leaves: a clock
counts steps, and a member is its clock time of finishing plus the residue of its context length modulo
the block size. Sums (context tokens, new blocks needed) follow in closed form. It knows no seconds and no
cache: it answers how much, the engine decides what to do about it.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tao.enginemodel.chain import Chain
from tao.enginemodel.messages import Request
from tao.enginemodel.prefix_cache import Run


class Live:
    """A request inside the engine; mutable, owned by the engine."""

    __slots__ = (
        "cached_tokens",
        "chain",
        "computed",
        "generated",
        "joined_at",
        "output_tokens",
        "prompt_tokens",
        "request",
        "run",
        "target",
        "ticket",
    )

    def __init__(self, request: Request, chain: Chain, root: Run) -> None:
        self.request = request
        self.chain = chain  # prompt and output
        self.prompt_tokens = request.prompt.tokens
        self.output_tokens = request.output_tokens
        self.generated = 0  # tokens generated; while decoding: when it joined the group
        self.joined_at = 0  # decode clock
        self.ticket = 0  # entry in the group's heap; 0: not decoding
        self.target = 0  # tokens to compute before the next token can be generated
        self.computed = 0  # tokens computed or being computed in the current step, while prefilling
        self.run = root  # deepest cached run it pins
        self.cached_tokens = -1  # found at the first admission; -1: never admitted


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

    def blocks_needed(self, steps: int) -> int:
        """New blocks that the next `steps` steps need together."""
        rounds, rest = divmod(steps, self._block_tokens)
        needed = rounds * self.size
        if rest:
            residues, size = self._residues, self._block_tokens
            first = 1 - self.clock
            for step in range(rest):
                needed += residues[(first - step) % size]
        return needed

    def steps_within(self, blocks: int, steps_max: int) -> int:
        """Most steps (<= steps_max) for which `blocks` new blocks suffice."""
        size, members = self._block_tokens, self.size
        if (steps_max // size + 1) * members <= blocks:
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
