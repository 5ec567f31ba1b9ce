"""The steps of one replica: who is in each, how long it takes, what it leaves behind.

How a step is formed follows vLLM's scheduler (V1): running requests first, in order of admission, one token
for each that decodes; then the unfinished prompt; then waiting requests in order, while the token budget, the
number of running requests and the blocks allow. Departures from it: a prompt's blocks are all reserved at
admission; output blocks enter the cache when the request leaves; equal blocks computed twice at one time are
merged.
It must not know when it is asked: `EngineModel` runs it along the caller's time.
"""

from __future__ import annotations

from collections import OrderedDict

from tao.enginemodel.decode_group import DecodeGroup
from tao.enginemodel.kv_blocks import KvBlocks
from tao.enginemodel.leap import Leap
from tao.enginemodel.live import Live
from tao.enginemodel.messages import EngineEvent, Finished, FirstToken, Preempted
from tao.enginemodel.prefix_cache import BlockObserver
from tao.enginemodel.profile import Profile


class Steps:
    """State between and during steps. `leap` is what is in progress: equal steps taken as one; None: none is.

    `waiting` and `running` are in order of arrival and of admission; the last admitted is the first to be
    preempted. A finished request has left both.
    """

    def __init__(self, profile: Profile, total_blocks: int, observer: BlockObserver | None) -> None:
        host_blocks = profile.offload_capacity_tokens // profile.block_tokens
        self.blocks = KvBlocks(total_blocks, profile.block_tokens, observer, host_blocks)
        self.waiting: OrderedDict[str, Live] = OrderedDict()
        self.running: dict[str, Live] = {}
        self.leap: Leap | None = None
        self.group = DecodeGroup(profile.block_tokens)
        self.events: list[EngineEvent] = []
        self.preemptions = self.prefix_queries = self.prefix_hits = self.reloaded_tokens = 0
        self.prompt_tokens = self.generation_tokens = self.finished = 0
        self._chunks: list[Live] = []  # prefilling in the current step; all but the last end with it
        self._partial: Live | None = None  # running, its prompt not yet computed
        self._running_max = profile.max_running
        self._batched_tokens = profile.max_batched_tokens
        self._base_seconds = [0.0] + [profile.decode_base(n) / 1e3 for n in range(1, profile.max_running + 1)]
        self._context_seconds = profile.decode_ms_per_context_token / 1e3
        self._fixed_seconds = profile.prefill_fixed_ms / 1e3
        self._token_seconds = profile.prefill_ms_per_token / 1e3
        self._squared_seconds = profile.prefill_ms_per_token_squared / 1e3
        self._reload_tokens_per_second = profile.offload_reload_tokens_per_second

    def find(self, request_id: str) -> Live | None:
        """A request that waits or runs."""
        return self.running.get(request_id) or self.waiting.get(request_id)

    # ---- the queue ---------------------------------------------------------------------------------------

    def enqueue(self, live: Live, at: float) -> None:
        """Queue a request; a leap that it may interrupt ends with the step in progress."""
        self.waiting[live.request.id] = live
        # With somebody waiting already, the head is blocked and stays so until the leap ends anyway; so it is
        # while a prompt takes the whole token budget of each step.
        if len(self.waiting) == 1 and len(self.running) < self._running_max and self._partial is None:
            self._cut(at)

    def remove(self, live: Live, at: float) -> None:
        """Drop a request and free its blocks at once; the step in progress keeps its duration."""
        request_id = live.request.id
        if self.waiting.pop(request_id, None) is not None:
            self._cut(at)  # the next in line may fit
            return
        self._isolate_step(at)
        del self.running[request_id]
        if live.ticket:
            self.group.leave(live)
            self.blocks.release_decoding(live, tokens_in_step=1 if self.leap is not None else 0)
            return
        if self._partial is live:
            self._partial = None
        if live in self._chunks:
            self._chunks.remove(live)
        self.blocks.release_prefilling(live)

    def _cut(self, at: float) -> None:
        """End the leap with the step in progress: what is waiting may join the next one."""
        leap = self.leap
        if leap is None or leap.steps == 1:
            return
        completed = leap.completed(at)
        if completed and leap.ends_at(completed) == at:
            leap.cut(completed)
            self.finish_step(leap)
        elif completed + 1 < leap.steps:
            leap.cut(completed + 1)

    def _isolate_step(self, at: float) -> None:
        """Settle the completed steps of the leap, so that only the step in progress is left of it."""
        self._cut(at)
        leap = self.leap
        if leap is None or leap.steps == 1:
            return
        done = leap.steps - 1
        self.book(leap, leap.steps)
        self.group.advance(done)
        self.generation_tokens += done * self.group.size
        last = Leap(leap.ends_at(done), 0.0, 0.0, 1)
        last.end = leap.end
        self.leap = last

    # ---- steps -------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Form the step that begins now: decodes, the unfinished prompt, then waiting requests."""
        group, blocks = self.group, self.blocks
        preemptions = self.preemptions
        if group.size and (needed := group.blocks_needed_next()):
            if needed > blocks.free + blocks.cache.idle_blocks:
                self._make_room(now)
                needed = group.blocks_needed_next()
            blocks.take(needed)
        preempted = self.preemptions != preemptions
        decoding = group.size
        budget = tokens = self._batched_tokens - decoding
        chunks_seconds = 0.0
        if self._partial is not None:
            tokens, chunks_seconds = self._prefill(self._partial, tokens)
            tokens = budget - tokens
        if self.waiting and tokens and not preempted:
            chunks_seconds += self._admit(tokens)
        if not decoding:
            assert self._chunks, "a step without work"
            self.leap = self._leap(now, self._fixed_seconds + chunks_seconds, 0.0, budget, preempted)
        else:
            per_token = self._context_seconds
            seconds = self._base_seconds[decoding] + per_token * group.context_tokens + chunks_seconds
            self.leap = self._leap(now, seconds, per_token * decoding, budget, preempted)

    def _leap(self, now: float, seconds: float, growth: float, budget: int, preempted: bool) -> Leap:
        """The step just formed and those behind it that are bound to be of the same kind.

        `seconds` is how long this one takes, `growth` how much longer each next one takes for what is decoded.
        """
        group, chunks, partial = self.group, self._chunks, self._partial
        chunk_tokens = 0
        if not chunks:
            # Whoever was preempted may come back with the next step, unlike others that wait.
            steps = 1 if preempted else group.steps_to_finish()
        elif partial is None or len(chunks) > 1 or self.blocks.may_be_cached(partial):
            return Leap(now, seconds, growth, 1)
        else:
            # One prompt takes the whole token budget, and so it will until its last chunk.
            steps = 1 + (partial.target - partial.computed - 1) // budget
            if group.size:
                steps = min(steps, group.steps_to_finish())
            chunk_tokens = budget
            growth += self._squared_seconds * budget * budget
        if steps > 1 and group.size:
            # This step's blocks are taken; those of the others must come out of what is left.
            steps = group.steps_within(self.blocks.available() + group.blocks_needed_next(), steps)
        return Leap(now, seconds, growth, steps, chunk_tokens)

    def book(self, leap: Leap, steps: int) -> None:
        """Take the decode blocks and cache the chunks of the leap's first `steps` steps, as far as not yet
        done.
        """
        group = self.group
        if group.size and steps > leap.decode_steps:
            self.blocks.take(group.blocks_needed(leap.decode_steps, steps))
            leap.decode_steps = steps
        if leap.chunk_tokens and steps > leap.chunk_steps:
            (live,) = self._chunks
            live.computed += (steps - leap.chunk_steps) * leap.chunk_tokens
            leap.chunk_steps = steps
            self.blocks.store(live, live.computed)

    def finish_step(self, leap: Leap) -> None:
        group, steps = self.group, leap.steps
        if steps > 1:
            self.book(leap, steps)
        now = leap.end
        self.leap = None
        self.generation_tokens += steps * group.size
        group.advance(steps)
        while (live := group.pop_finished()) is not None:
            self._finish(live, now)
        if self._chunks:
            chunks, self._chunks = self._chunks, []
            for live in chunks:
                if live.computed == live.target:
                    self._prefilled(live, now)

    def _prefilled(self, live: Live, now: float) -> None:
        """The whole of what was to compute is computed: one more token is there."""
        live.generated += 1
        self.generation_tokens += 1
        if live.generated == 1:
            self.events.append(FirstToken(now, live.request.id, live.cached_tokens))
        if live.generated == live.output_tokens:
            self._finish(live, now)
        else:
            self.group.join(live)

    def _finish(self, live: Live, now: float) -> None:
        request_id = live.request.id
        self.finished += 1
        del self.running[request_id]
        self.blocks.release_decoding(live, tokens_in_step=0)
        self.events.append(Finished(now, request_id, live.cached_tokens, live.output_tokens))

    # ---- admission and prefill ---------------------------------------------------------------------------

    def _admit(self, budget: int) -> float:
        """Admit waiting requests in order while limits allow; returns the seconds their chunks add."""
        waiting, running, running_max = self.waiting, self.running, self._running_max
        added_seconds = 0.0
        while waiting and budget > 0 and len(running) < running_max:
            request_id, live = next(iter(waiting.items()))
            target = live.prompt_tokens + live.generated
            if not self.blocks.admit(live, target):
                break
            del waiting[request_id]
            running[request_id] = live
            if live.cached_tokens < 0:
                live.cached_tokens = live.computed
                self.prefix_queries += target
                self.prefix_hits += live.computed - live.reloaded_tokens
                self.prompt_tokens += target
            if live.reloaded_tokens:
                self.reloaded_tokens += live.reloaded_tokens
                added_seconds += live.reloaded_tokens / self._reload_tokens_per_second
            tokens, seconds = self._prefill(live, budget)
            budget -= tokens
            added_seconds += seconds
        return added_seconds

    def _prefill(self, live: Live, budget: int) -> tuple[int, float]:
        """Put the next chunk of a prompt into the step: (tokens, seconds). Its full blocks are cached at
        once.
        """
        cached = live.computed
        tokens = min(live.target - cached, budget)
        live.computed = cached + tokens
        self._partial = live if live.computed < live.target else None
        self._chunks.append(live)
        self.blocks.store(live, live.computed)
        return tokens, tokens * (self._token_seconds + self._squared_seconds * (cached + tokens / 2))

    # ---- blocks ------------------------------------------------------------------------------------------

    def _make_room(self, now: float) -> None:
        """Preempt the last comers until the step being formed has the blocks it needs."""
        group, blocks = self.group, self.blocks
        while group.blocks_needed_next() > blocks.available():
            self._preempt_last(now)

    def _preempt_last(self, now: float) -> None:
        request_id, live = self.running.popitem()
        if live.ticket:
            self.group.leave(live)
            self.blocks.release_decoding(live, tokens_in_step=0)
        else:
            self._partial = None
            self.blocks.release_prefilling(live)
        self.waiting[request_id] = live
        self.waiting.move_to_end(request_id, last=False)
        self.preemptions += 1
        self.events.append(Preempted(now, request_id, live.generated))
