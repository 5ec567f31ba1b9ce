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

from tao.enginemodel.decode_group import DecodeGroup
from tao.enginemodel.kv_blocks import KvBlocks
from tao.enginemodel.leap import Leap
from tao.enginemodel.live import Live
from tao.enginemodel.messages import (
    EngineEvent,
    EngineStats,
    Finished,
    FirstToken,
    Preempted,
    Request,
    RequestRefusedError,
)
from tao.enginemodel.prefix_cache import BlockObserver
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
        self._batched_tokens = profile.max_batched_tokens
        self._fixed_seconds = profile.prefill_fixed_ms / 1e3
        self._token_seconds = profile.prefill_ms_per_token / 1e3
        self._squared_seconds = profile.prefill_ms_per_token_squared / 1e3
        self._time = 0.0
        self._events: list[EngineEvent] = []
        self._reset()

    def _reset(self) -> None:
        size = self.profile.block_tokens
        self._blocks = KvBlocks(self.total_blocks, size, self._observer)
        self._group = DecodeGroup(size)
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
        live = Live(request, request.conversation(), self._blocks.cache.root)
        self._live[request.id] = live
        self._waiting[request.id] = live
        # With somebody waiting already, the head is blocked and stays so until the leap ends anyway; so it is
        # while a prompt takes the whole token budget of each step.
        if (
            len(self._waiting) == 1
            and len(self._running) < self.profile.max_running
            and self._partial is None
        ):
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
            self._blocks.release_decoding(live, tokens_in_step=1 if self._leap is not None else 0)
            return True
        if self._partial is live:
            self._partial = None
        if live in self._chunks:
            self._chunks.remove(live)
        self._blocks.release_prefilling(live)
        return True

    def flush(self, at: float) -> bool:
        """Empty the prefix cache, as vLLM's /reset_prefix_cache: False and no change while requests are
        running.
        """
        self._run_to(at)
        if self._running:
            return False
        self._blocks.clear()
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
            self._book(self._leap, min(completed + 1, self._leap.steps))
            generation_tokens += completed * self._group.size
        idle = self._blocks.cache.idle_blocks
        return EngineStats(
            at=self._time,
            running=len(self._running),
            waiting=len(self._waiting),
            total_blocks=self.total_blocks,
            used_blocks=self.total_blocks - self._blocks.free - idle,
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
        self._book(leap, leap.steps)
        self._group.advance(done)
        self._generation_tokens += done * self._group.size
        last = Leap(leap.ends_at(done), 0.0, 0.0, 1)
        last.end = leap.end
        self._leap = last

    # ---- steps -------------------------------------------------------------------------------------------

    def _start_step(self) -> None:
        """Form the step that begins now: decodes, the unfinished prompt, then waiting requests."""
        group, blocks = self._group, self._blocks
        preemptions = self._preemptions
        if group.size and (needed := group.blocks_needed_next()):
            if needed > blocks.free + blocks.cache.idle_blocks:
                self._make_room()
                needed = group.blocks_needed_next()
            blocks.take(needed)
        preempted = self._preemptions != preemptions
        budget = tokens = self._batched_tokens - group.size
        seconds = 0.0
        if self._partial is not None:
            tokens, seconds = self._prefill(self._partial, tokens)
            tokens = budget - tokens
        if self._waiting and tokens and not preempted:
            seconds += self._admit(tokens)
        self._leap = self._form_leap(seconds, budget, preempted)

    def _form_leap(self, chunks_seconds: float, budget: int, preempted: bool) -> Leap:
        """The step just formed and those behind it that are bound to be of the same kind."""
        group, chunks, partial = self._group, self._chunks, self._partial
        steps, chunk_tokens, growth = 1, 0, 0.0
        if not group.size:
            assert chunks, "a step without work"
            seconds = self._fixed_seconds + chunks_seconds
        else:
            seconds = self._base_seconds[group.size] + self._context_seconds * group.context_tokens
            seconds += chunks_seconds
            growth = self._context_seconds * group.size
        if not chunks:
            # Whoever was preempted may come back with the next step, unlike others that wait.
            steps = 1 if preempted else group.steps_to_finish()
        elif partial is not None and len(chunks) == 1 and not self._blocks.may_be_cached(partial):
            # One prompt takes the whole token budget, and so it will until its last chunk.
            steps += (partial.target - partial.computed - 1) // budget
            if group.size:
                steps = min(steps, group.steps_to_finish())
            chunk_tokens = budget
            growth += self._squared_seconds * budget * budget
        if steps > 1 and group.size:
            # This step's blocks are taken; those of the others must come out of what is left.
            steps = group.steps_within(self._blocks.available() + group.blocks_needed_next(), steps)
        return Leap(self._time, seconds, growth, steps, chunk_tokens)

    def _book(self, leap: Leap, steps: int) -> None:
        """Take the decode blocks and cache the chunks of the leap's first `steps` steps, as far as not yet
        done.
        """
        group = self._group
        if group.size and steps > leap.decode_steps:
            self._blocks.take(group.blocks_needed(leap.decode_steps, steps))
            leap.decode_steps = steps
        if leap.chunk_tokens and steps > leap.chunk_steps:
            (live,) = self._chunks
            live.computed += (steps - leap.chunk_steps) * leap.chunk_tokens
            leap.chunk_steps = steps
            self._blocks.store(live, live.computed)

    def _finish_step(self, leap: Leap) -> None:
        group = self._group
        if leap.steps > 1:
            self._book(leap, leap.steps)
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
        self._blocks.release_decoding(live, tokens_in_step=0)
        self._events.append(Finished(now, request_id, live.cached_tokens, live.output_tokens))

    # ---- admission and prefill ---------------------------------------------------------------------------

    def _admit(self, budget: int) -> float:
        """Admit waiting requests in order while limits allow; returns the seconds their chunks add."""
        waiting, running, running_max = self._waiting, self._running, self.profile.max_running
        added_seconds = 0.0
        while waiting and budget > 0 and len(running) < running_max:
            request_id, live = next(iter(waiting.items()))
            target = live.prompt_tokens + live.generated
            if not self._blocks.admit(live, target):
                break
            del waiting[request_id]
            running[request_id] = live
            if live.cached_tokens < 0:
                live.cached_tokens = live.computed
                self._prefix_queries += target
                self._prefix_hits += live.computed
                self._prompt_tokens += target
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
        self._blocks.store(live, live.computed)
        return tokens, tokens * (self._token_seconds + self._squared_seconds * (cached + tokens / 2))

    # ---- blocks ------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Preempt the last comers until the step being formed has the blocks it needs."""
        group, blocks = self._group, self._blocks
        while group.blocks_needed_next() > blocks.available():
            self._preempt_last()

    def _preempt_last(self) -> None:
        request_id, live = self._running.popitem()
        if live.ticket:
            self._group.leave(live)
            self._blocks.release_decoding(live, tokens_in_step=0)
        else:
            self._partial = None
            self._blocks.release_prefilling(live)
        self._waiting[request_id] = live
        self._waiting.move_to_end(request_id, last=False)
        self._preemptions += 1
        self._events.append(Preempted(self._time, request_id, live.generated))

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
