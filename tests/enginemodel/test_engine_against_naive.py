"""The engine model gives the same events as a naive one on random workloads.

The naive engine is the model written a second time without cleverness, block by block and step by step;
it shares only the values (profile, requests, chains as data) with the real one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tao.enginemodel import (
    Chain,
    EngineEvent,
    EngineModel,
    FirstToken,
    Preempted,
    Profile,
    Request,
    load_profile,
)


@dataclass(eq=False)
class Block:
    content: int | None = None  # identity when cached
    refs: int = 1


@dataclass(eq=False)
class Job:
    request: Request
    contents: list[int]  # identity of each full block of prompt and output
    generated: int = 0
    computed: int = 0
    blocks: list[Block] = field(default_factory=list)
    cached_tokens: int = -1
    chunk: int = 0
    target: int = 0

    @property
    def known(self) -> int:
        return self.request.prompt.tokens + self.generated


class NaiveEngine:
    def __init__(self, profile: Profile, total_blocks: int) -> None:
        self.profile = profile
        self.size = profile.block_tokens
        self.free = total_blocks
        self.cached: dict[int, Block] = {}
        self.idle: OrderedDict[int, Block] = OrderedDict()
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.interned: dict[tuple[int, tuple[Hashable, ...]], int] = {}
        self.now = 0.0
        self.step_end: float | None = None
        self.in_step: list[Job] = []
        self.events: list[tuple[str, float, str, int]] = []

    def contents(self, chain: Chain) -> list[int]:
        tokens = [(key, i) for key, first, end in chain.slices(0, chain.tokens) for i in range(first, end)]
        found, identity = [], 0
        for start in range(0, len(tokens) - self.size + 1, self.size):
            entry = (identity, tuple(tokens[start : start + self.size]))
            identity = self.interned.setdefault(entry, len(self.interned) + 1)
            found.append(identity)
        return found

    def run_to(self, to: float) -> None:
        while True:
            if self.step_end is None:
                if self.now >= to or not (self.running or self.waiting):
                    break
                self.start_step()
            elif self.step_end <= to:
                self.finish_step()
            else:
                break
        self.now = to

    def submit(self, at: float, request: Request) -> None:
        self.run_to(at)
        self.waiting.append(Job(request, self.contents(request.conversation())))

    def abort(self, at: float, request_id: str) -> None:
        self.run_to(at)
        for job in list(self.waiting):
            if job.request.id == request_id:
                self.waiting.remove(job)
        for job in list(self.running):
            if job.request.id == request_id:
                self.running.remove(job)
                if job in self.in_step:
                    self.in_step.remove(job)
                self.give_up(job)

    # ---- blocks

    def take_block(self) -> Block | None:
        if self.free > 0:
            self.free -= 1
            return Block()
        if not self.idle:
            return None
        content, _ = self.idle.popitem(last=False)
        del self.cached[content]
        return Block()

    def cache_full(self, job: Job, tokens: int) -> None:
        for index in range(tokens // self.size):
            block, content = job.blocks[index], job.contents[index]
            if block.content is not None:
                continue
            if content in self.cached:
                job.blocks[index] = self.hold(content)
                self.free += 1
            else:
                block.content = content
                self.cached[content] = block

    def hold(self, content: int) -> Block:
        block = self.cached[content]
        if block.refs == 0:
            del self.idle[content]
        block.refs += 1
        return block

    def give_up(self, job: Job) -> None:
        if job.computed >= job.request.prompt.tokens and job.chunk == 0:
            self.cache_full(job, job.computed)
        for block in reversed(job.blocks):
            block.refs -= 1
            if block.refs == 0:
                if block.content is None:
                    self.free += 1
                else:
                    self.idle[block.content] = block
        job.blocks = []
        job.computed = 0
        job.chunk = 0

    def available(self) -> int:
        return self.free + len(self.idle)

    # ---- steps

    def grow(self, job: Job) -> bool:
        """One more token of context; preempts the last comer until a block is there. False: it was itself."""
        while len(job.blocks) * self.size < job.known:
            block = self.take_block()
            if block is not None:
                job.blocks.append(block)
                continue
            last = self.running.pop()
            self.give_up(last)
            self.waiting.appendleft(last)
            self.preempted = True
            self.events.append(("preempted", self.now, last.request.id, last.generated))
            if last is job:
                return False
        return True

    def start_step(self) -> None:
        self.preempted = False
        self.in_step = []
        decoding: list[Job] = []
        budget = self.profile.max_batched_tokens
        position = 0
        while position < len(self.running):
            job = self.running[position]
            if not self.prefilling(job) and self.grow(job):
                decoding.append(job)
                budget -= 1
            position += 1
        milliseconds = 0.0
        for job in self.running:
            if self.prefilling(job):
                milliseconds += self.chunk(job, budget)
                budget -= job.chunk
        while not self.preempted and self.waiting and budget > 0:
            if len(self.running) >= self.profile.max_running or not self.admit(self.waiting[0]):
                break
            job = self.waiting.popleft()
            self.running.append(job)
            milliseconds += self.chunk(job, budget)
            budget -= job.chunk
        if decoding:
            milliseconds += self.profile.decode_base(len(decoding))
            milliseconds += self.profile.decode_ms_per_context_token * sum(job.known for job in decoding)
        else:
            milliseconds += self.profile.prefill_fixed_ms
        self.in_step += decoding
        self.step_end = self.now + milliseconds / 1e3

    def prefilling(self, job: Job) -> bool:
        return job.target > job.computed

    def admit(self, job: Job) -> bool:
        hit = 0
        while hit < (job.known - 1) // self.size and job.contents[hit] in self.cached:
            hit += 1
        needed = -(-job.known // self.size) - hit
        idle_hits = sum(self.cached[content].refs == 0 for content in job.contents[:hit])
        if needed + idle_hits > self.available():
            return False
        job.blocks = [self.hold(content) for content in job.contents[:hit]]
        for _ in range(needed):
            block = self.take_block()
            assert block is not None
            job.blocks.append(block)
        job.computed = hit * self.size
        job.target = job.known
        if job.cached_tokens < 0:
            job.cached_tokens = job.computed
        return True

    def chunk(self, job: Job, budget: int) -> float:
        job.chunk = min(job.known - job.computed, budget)
        milliseconds = self.profile.chunk_ms(job.chunk, job.computed)
        job.computed += job.chunk
        self.cache_full(job, job.computed)
        self.in_step.append(job)
        return milliseconds

    def finish_step(self) -> None:
        assert self.step_end is not None
        self.now, self.step_end = self.step_end, None
        for job in sorted(self.in_step, key=lambda job: job.chunk > 0):
            if job.chunk == 0:
                job.computed += 1
            else:
                job.chunk = 0
                if job.computed < job.known:
                    continue
            job.generated += 1
            if job.generated == 1:
                self.events.append(("first", self.now, job.request.id, job.cached_tokens))
            if job.generated == job.request.output_tokens:
                self.running.remove(job)
                self.give_up(job)
                self.events.append(("finished", self.now, job.request.id, job.cached_tokens))
        self.in_step = []


PROFILE = replace(load_profile("qwen3-32b-tp2-h100"), max_running=6, max_batched_tokens=64)
BLOCKS = 24


def plain(event: EngineEvent) -> tuple[str, float, str, int]:
    if isinstance(event, Preempted):
        return ("preempted", event.at, event.request_id, event.generated_tokens)
    kind = "first" if isinstance(event, FirstToken) else "finished"
    return (kind, event.at, event.request_id, event.cached_tokens)


segments = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=4)
submission = st.tuples(st.just("submit"), st.floats(0.0003, 0.4), segments, st.integers(1, 60))
abortion = st.tuples(st.just("abort"), st.floats(0.0003, 0.4), st.integers(0, 12), st.just(0))
operations = st.lists(st.one_of(submission, submission, submission, abortion), min_size=1, max_size=14)


def play(operations: list[Any], blocks: int, polls: int) -> tuple[Any, Any]:
    """Run both on the same operations (times are gaps); the model is polled `polls` times in between."""
    fast, naive = EngineModel(PROFILE, blocks * 16), NaiveEngine(PROFILE, blocks)
    events: list[tuple[str, float, str, int]] = []
    conversations: list[Chain] = []
    at = 0.0
    for number, (kind, gap, content, output_tokens) in enumerate(operations):
        for poll in range(polls):
            events += map(plain, fast.advance(at + gap * (poll + 0.5) / (polls + 1)))
            fast.stats()
        at += gap
        if kind == "abort":
            fast.abort(at, f"r{content}")
            naive.abort(at, f"r{content}")
            continue
        prompt = Chain.of((f"k{key}", tokens) for key, tokens in content)
        if content[0][0] == 2 and conversations:  # extend an earlier conversation
            prompt = conversations[content[0][1] % len(conversations)]
            for key, tokens in content:
                prompt = prompt.extended(f"k{key}", tokens)
        if prompt.tokens + output_tokens > blocks * 16:
            continue
        request = Request(f"r{number}", prompt, output_tokens)
        conversations.append(request.conversation())
        fast.submit(at, request)
        naive.submit(at, request)
    end = at + 1000.0
    events += map(plain, fast.advance(end))
    naive.run_to(end)
    return (fast, events), naive


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=operations, blocks=st.integers(8, 40), polls=st.sampled_from([0, 0, 1, 3]))
def test_same_events_as_step_by_step(operations: list[Any], blocks: int, polls: int) -> None:
    (fast, events), naive = play(operations, blocks, polls)
    assert [(kind, name, tokens) for kind, _, name, tokens in events] == [
        (kind, name, tokens) for kind, _, name, tokens in naive.events
    ]
    assert [at for _, at, _, _ in events] == pytest.approx([at for _, at, _, _ in naive.events], rel=1e-9)
    stats = fast.stats()
    assert (stats.running, stats.waiting, stats.used_blocks) == (0, 0, 0)
    assert stats.idle_blocks == len(naive.idle)
    assert stats.total_blocks - stats.idle_blocks == naive.free
