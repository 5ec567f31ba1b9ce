"""One replica as a sequence of steps: continuous batching, chunked prefill, KV blocks, prefix cache,
preemption.

Time is an argument. Steps that only decode and that nothing can interrupt are taken as one leap in closed
form, so the cost follows arrivals, prefill chunks, finishes and block shortages, not tokens. Results do
not depend on how often or at what times `advance` is called. It must not know wall clocks, sessions,
HTTP, or who asks.

How a step is formed follows vLLM's scheduler (V1): running requests first, in order of admission, one
token for each that decodes; then the unfinished prompt; then waiting requests in order, while the token
budget, the number of running requests and the blocks allow. Departures from it: a prompt's blocks are all
reserved at admission; output blocks enter the cache when the request leaves; equal blocks computed twice
at one time are merged.
"""

from __future__ import annotations

from collections import OrderedDict

from tao.enginemodel.decode_group import DecodeGroup, Live
from tao.enginemodel.leap import Leap
from tao.enginemodel.messages import (
    EngineEvent,
    EngineStats,
    Finished,
    FirstToken,
    Preempted,
    Request,
    RequestRefusedError,
)
from tao.enginemodel.prefix_cache import BlockObserver, PrefixCache
from tao.enginemodel.profile import Profile


class EngineModel:
    """A model of one replica.

    `submit`, `abort`, `flush`, `restart` happen at a time that must not lie before an earlier one.
    `advance(to)` returns the events up to and including `to`, in order. `next_event_at()` is when to call
    it again.
    """

    def __init__(
        self, profile: Profile, kv_tokens: int | None = None, block_observer: BlockObserver | None = None
    ) -> None:
        tokens = profile.kv_tokens if kv_tokens is None else kv_tokens
        if tokens < profile.block_tokens:
            raise ValueError(f"kv_tokens = {tokens} is less than one block of {profile.block_tokens} tokens")
        self.profile = profile
        self.total_blocks = tokens // profile.block_tokens
        self._observer = block_observer
        self._base_seconds = [0.0] + [profile.decode_base(n) / 1e3 for n in range(1, profile.max_running + 1)]
        self._context_seconds = profile.decode_ms_per_context_token / 1e3
        self._time = 0.0
        self._events: list[EngineEvent] = []
        self._reset()

    def _reset(self) -> None:
        size = self.profile.block_tokens
        self._cache = PrefixCache(size, self._observer)
        self._group = DecodeGroup(size)
        self._free = self.total_blocks  # empty blocks; idle cached ones come on top
        self._live: dict[str, Live] = {}
        self._waiting: OrderedDict[str, Live] = OrderedDict()
        self._running: dict[str, Live] = {}  # in order of admission: the last is the first to be preempted
        self._chunks: list[Live] = []  # prefilling in the current step; all but the last end with it
        self._partial: Live | None = None  # running, its prompt not yet computed
        self._leap: Leap | None = None
        self._preemptions = self._prefix_queries = self._prefix_hits = 0
        self._prompt_tokens = self._generation_tokens = self._finished = self._aborted = 0

    # ---- what comes in -----------------------------------------------------------------------------------

    def submit(self, at: float, request: Request) -> None:
        """Queue a request. Raises RequestRefusedError for one that can never run; nothing changes then."""
        self._run_to(at)
        self._check(request)
        live = Live(request, request.conversation(), self._cache.root)
        self._live[request.id] = live
        self._waiting[request.id] = live
        # With somebody waiting already, the head is blocked and stays so until the leap ends anyway.
        if len(self._waiting) == 1 and len(self._running) < self.profile.max_running:
            self._cut(at)

    def abort(self, at: float, request_id: str) -> bool:
        """Drop a request at once and free its blocks; the step in progress keeps its duration. False:
        unknown id.
        """
        self._run_to(at)
        live = self._live.pop(request_id, None)
        if live is None:
            return False
        self._aborted += 1
        if self._waiting.pop(request_id, None) is not None:
            self._cut(at)  # the next in line may fit
            return True
        self._isolate_step(at)
        del self._running[request_id]
        if live.ticket:
            self._group.leave(live)
            self._release_decoding(live, tokens_in_step=1 if self._leap is not None else 0)
            return True
        if self._partial is live:
            self._partial = None
        if live in self._chunks:
            self._chunks.remove(live)
        self._release_prefilling(live)
        return True

    def flush(self, at: float) -> bool:
        """Empty the prefix cache, as vLLM's /reset_prefix_cache: False and no change while requests are
        running.
        """
        self._run_to(at)
        if self._running:
            return False
        self._free += self._cache.idle_blocks
        self._cache.clear()
        return True

    def restart(self, at: float) -> tuple[str, ...]:
        """The engine dies and comes back empty, counters included. Returns the ids of the requests that are
        lost.
        """
        self._run_to(at)
        lost = tuple(self._live)
        if self._observer is not None:
            self._observer.cleared()
        self._reset()
        return lost

    # ---- what comes out ----------------------------------------------------------------------------------

    def next_event_at(self) -> float | None:
        """When to call `advance` next; None while nothing runs. Forms the step that is due: whatever is
        submitted afterwards waits for the next one, even at the same instant.
        """
        if self._leap is None and self._live:
            self._start_step()
        return None if self._leap is None else self._leap.end

    def advance(self, to: float) -> list[EngineEvent]:
        """Run up to and including `to` (seconds) and return the events since the last call, oldest first."""
        self._run_to(to)
        events, self._events = self._events, []
        return events

    def generated(self, request_id: str) -> int:
        """Tokens a request has generated by now (the last time given); KeyError for one that is not in the
        engine.
        """
        live = self._live[request_id]
        if not live.ticket:
            return live.generated
        steps = 0 if self._leap is None else self._leap.completed(self._time)
        return live.generated + self._group.clock - live.joined_at + steps

    def stats(self) -> EngineStats:
        """Gauges and counters by now."""
        generation_tokens = self._generation_tokens
        if self._leap is not None:
            completed = self._leap.completed(self._time)
            self._take_decode_blocks(min(completed + 1, self._leap.steps))
            generation_tokens += completed * self._group.size
        idle = self._cache.idle_blocks
        return EngineStats(
            at=self._time,
            running=len(self._running),
            waiting=len(self._waiting),
            total_blocks=self.total_blocks,
            used_blocks=self.total_blocks - self._free - idle,
            idle_blocks=idle,
            prefix_query_tokens=self._prefix_queries,
            prefix_hit_tokens=self._prefix_hits,
            preemptions=self._preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=generation_tokens,
            finished=self._finished,
            aborted=self._aborted,
        )

    # ---- time --------------------------------------------------------------------------------------------

    def _run_to(self, to: float) -> None:
        if to < self._time:
            raise ValueError(f"time runs backwards: {to} after {self._time}")
        while True:
            leap = self._leap
            if leap is None:
                # A step that is due now is formed when time moves on, so that arrivals of this instant
                # are in it.
                if not self._live or self._time >= to:
                    break
                self._start_step()
            elif leap.end <= to:
                self._finish_step(leap)
            else:
                break
        self._time = to

    def _cut(self, at: float) -> None:
        """End the leap with the step in progress: what is waiting may join the next one."""
        leap = self._leap
        if leap is None or leap.steps == 1:
            return
        completed = leap.completed(at)
        if completed and leap.ends_at(completed) == at:
            leap.cut(completed)
            self._finish_step(leap)
        elif completed + 1 < leap.steps:
            leap.cut(completed + 1)

    def _isolate_step(self, at: float) -> None:
        """Settle the completed steps of the leap, so that only the step in progress is left of it."""
        self._cut(at)
        leap = self._leap
        if leap is None or leap.steps == 1:
            return
        done = leap.steps - 1
        self._take_decode_blocks(leap.steps)
        self._group.advance(done)
        self._generation_tokens += done * self._group.size
        last = Leap(leap.ends_at(done), 0.0, 0.0, 1)
        last.end = leap.end
        self._leap = last

    # ---- steps -------------------------------------------------------------------------------------------

    def _start_step(self) -> None:
        """Form the step that begins now: decodes, the unfinished prompt, then waiting requests."""
        group, profile = self._group, self.profile
        preempted = self._take_first_decode_blocks()
        budget = profile.max_batched_tokens - group.size
        chunks_ms = 0.0
        if self._partial is not None:
            tokens, chunks_ms = self._prefill(self._partial, budget)
            budget -= tokens
        if not preempted and self._waiting:
            chunks_ms += self._admit(budget)
        if group.size == 0:
            assert self._chunks, "a step without work"
            self._leap = Leap(self._time, (profile.prefill_fixed_ms + chunks_ms) / 1e3, 0.0, 1)
            return
        seconds = self._base_seconds[group.size] + self._context_seconds * group.context_tokens
        if self._chunks:
            self._leap = Leap(self._time, seconds + chunks_ms / 1e3, 0.0, 1)
            return
        steps = 1 if preempted else group.steps_to_finish()
        if steps > 1:
            # This step's blocks are taken; the others must come out of what is left.
            spare = self._free + self._cache.idle_blocks
            steps = group.steps_within(spare + group.blocks_needed(1), steps)
        self._leap = Leap(self._time, seconds, self._context_seconds * group.size, steps)

    def _finish_step(self, leap: Leap) -> None:
        group = self._group
        self._take_decode_blocks(leap.steps)
        self._time = now = leap.end
        self._leap = None
        self._generation_tokens += leap.steps * group.size
        group.advance(leap.steps)
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
        self._generation_tokens += 1
        if live.generated == 1:
            self._events.append(FirstToken(now, live.request.id, live.cached_tokens))
        if live.generated == live.output_tokens:
            self._finish(live, now)
        else:
            self._group.join(live)

    def _finish(self, live: Live, now: float) -> None:
        request_id = live.request.id
        self._finished += 1
        del self._live[request_id]
        del self._running[request_id]
        self._release_decoding(live, tokens_in_step=0)
        self._events.append(Finished(now, request_id, live.cached_tokens, live.output_tokens))

    # ---- admission and prefill ---------------------------------------------------------------------------

    def _admit(self, budget: int) -> float:
        """Admit waiting requests in order while limits allow; returns the milliseconds their chunks add."""
        profile, cache = self.profile, self._cache
        size, waiting, running = profile.block_tokens, self._waiting, self._running
        added_ms = 0.0
        while waiting and budget > 0 and len(running) < profile.max_running:
            request_id, live = next(iter(waiting.items()))
            target = live.prompt_tokens + live.generated
            run, matched, idle = cache.match(live.chain, (target - 1) // size)
            blocks = -(-target // size)
            if blocks - matched + idle > self._free + cache.idle_blocks:
                break
            del waiting[request_id]
            running[request_id] = live
            live.run = cache.pin(run, matched)
            live.target = target
            live.computed = matched * size
            self._take(blocks - matched)
            if live.cached_tokens < 0:
                live.cached_tokens = live.computed
                self._prefix_queries += target
                self._prefix_hits += live.computed
                self._prompt_tokens += target
            tokens, chunk_ms = self._prefill(live, budget)
            budget -= tokens
            added_ms += chunk_ms
        return added_ms

    def _prefill(self, live: Live, budget: int) -> tuple[int, float]:
        """Put the next chunk of a prompt into the step: (tokens, milliseconds). Its full blocks are cached
        at once.
        """
        tokens = min(live.target - live.computed, budget)
        chunk_ms = self.profile.chunk_ms(tokens, live.computed)
        live.computed += tokens
        self._partial = live if live.computed < live.target else None
        self._chunks.append(live)
        full = live.computed // self.profile.block_tokens
        if full > live.run.end:
            live.run, duplicates = self._cache.extend(live.run, live.chain, full, live.request.id)
            self._free += duplicates
        return tokens, chunk_ms

    # ---- blocks ------------------------------------------------------------------------------------------

    def _take(self, blocks: int) -> None:
        """Take blocks, evicting idle ones where no empty ones are left."""
        self._free -= blocks
        if self._free < 0:
            self._cache.evict(-self._free)
            self._free = 0

    def _take_first_decode_blocks(self) -> bool:
        """Take the new blocks of the step being formed; preempts the last comers until there are enough
        (True).
        """
        group = self._group
        needed = group.blocks_needed(1) if group.size else 0
        preempted = False
        while needed > self._free + self._cache.idle_blocks:
            self._preempt_last()
            preempted = True
            needed = group.blocks_needed(1)
        if needed:
            self._take(needed)
        return preempted

    def _take_decode_blocks(self, steps: int) -> None:
        """Take the blocks of the leap's first `steps` steps, as far as not yet taken."""
        leap = self._leap
        if leap is None or steps <= leap.blocks_steps:
            return
        group = self._group
        needed = group.blocks_needed(steps) - group.blocks_needed(leap.blocks_steps)
        leap.blocks_steps = steps
        if needed:
            self._take(needed)

    def _preempt_last(self) -> None:
        request_id, live = self._running.popitem()
        if live.ticket:
            self._group.leave(live)
            self._release_decoding(live, tokens_in_step=0)
        else:
            self._partial = None
            self._release_prefilling(live)
        self._waiting[request_id] = live
        self._waiting.move_to_end(request_id, last=False)
        self._preemptions += 1
        self._events.append(Preempted(self._time, request_id, live.generated))

    def _release_prefilling(self, live: Live) -> None:
        """Free the blocks of a request whose prompt is being computed; full computed ones are cached
        already.
        """
        self._free += -(-live.target // self.profile.block_tokens) - live.run.end
        self._unpin(live)

    def _release_decoding(self, live: Live, tokens_in_step: int) -> None:
        """Cache what a request has computed and free the rest, the block of a step in progress included."""
        size = self.profile.block_tokens
        computed = live.prompt_tokens + live.generated - 1  # the last token's KV is never computed
        full = computed // size
        self._free += -(-(computed + tokens_in_step) // size) - full
        if full > live.run.end:
            live.run, duplicates = self._cache.extend(live.run, live.chain, full, live.request.id)
            self._free += duplicates
        self._unpin(live)

    def _unpin(self, live: Live) -> None:
        self._cache.release(live.run)
        live.run = self._cache.root

    def _check(self, request: Request) -> None:
        if request.id in self._live:
            raise RequestRefusedError(f"request id {request.id!r} is in use")
        if request.output_tokens < 1 or request.prompt.tokens < 1:
            raise RequestRefusedError(
                f"request {request.id!r} needs at least one prompt token and one output token"
            )
        total = request.prompt.tokens + request.output_tokens
        if total > self.profile.max_model_tokens:
            raise RequestRefusedError(
                f"prompt and output have {total} tokens, the model takes {self.profile.max_model_tokens}"
            )
        blocks = -(-(total - 1) // self.profile.block_tokens)
        if blocks > self.total_blocks:
            raise RequestRefusedError(
                f"prompt and output need {blocks} KV blocks; the replica has {self.total_blocks}"
            )
        if request.output and sum(tokens for _, tokens in request.output) != request.output_tokens:
            raise RequestRefusedError(
                f"the output segments of {request.id!r} do not add up to its output tokens"
            )
