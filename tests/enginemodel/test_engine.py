"""The engine model on small cases worked out by hand."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest

from tao.enginemodel import (
    Chain,
    EngineModel,
    Finished,
    FirstToken,
    Preempted,
    Request,
    RequestRefusedError,
    load_profile,
)

PROFILE = load_profile("qwen3-32b-tp2-h100")


def chain(*segments: tuple[str, int]) -> Chain:
    return Chain.of(segments)


def finish(model: EngineModel, request: Request, at: float) -> Finished:
    """Run one request alone to its end."""
    model.submit(at, request)
    events = model.advance(at + 1000)
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_one_request_takes_what_the_formula_says() -> None:
    model = EngineModel(PROFILE)
    model.submit(1.0, Request("r", chain(("a", 1000)), 5))
    first, last = model.advance(100.0)
    prefill = (12.3 + 0.04402 * 1000 + 1.639e-6 * 1000 * 500) / 1e3
    decode = (4 * 13.5 + 42.2e-6 * (1001 + 1002 + 1003 + 1004)) / 1e3
    assert first == FirstToken(first.at, "r", 0)
    assert first.at == pytest.approx(1.0 + prefill)
    assert last == Finished(last.at, "r", 0, 5)
    assert last.at == pytest.approx(1.0 + prefill + decode)


def test_long_prompt_is_computed_in_chunks() -> None:
    model = EngineModel(PROFILE)
    model.submit(0.0, Request("r", chain(("a", 20_000)), 1))
    model.advance(100.0)
    model.submit(100.0, Request("s", chain(("b", 20_000)), 1))
    expected = PROFILE.prefill_ms(8192) + PROFILE.prefill_ms(8192, 8192) + PROFILE.prefill_ms(3616, 16384)
    (event, _) = model.advance(200.0)
    assert event.at - 100.0 == pytest.approx(expected / 1e3)


def test_mixed_step_drops_the_fixed_part_of_prefill() -> None:
    model = EngineModel(PROFILE)
    model.submit(0.0, Request("a", chain(("a", 160)), 1000))
    start = model.advance(1.0)[0].at
    model.submit(1.0, Request("b", chain(("b", 320)), 2))
    event = model.advance(1.2)[0]
    step = (13.5 + 42.2e-6 * 161) / 1e3
    steps = 0
    at, context = start, 161
    while at <= 1.0:  # the step in progress when b arrives ends first
        at += (13.5 + 42.2e-6 * context) / 1e3
        context += 1
        steps += 1
    mixed = (13.5 + 42.2e-6 * context + PROFILE.chunk_ms(320, 0)) / 1e3
    assert steps > 10
    assert step < mixed
    assert event == FirstToken(event.at, "b", 0)
    assert event.at == pytest.approx(at + mixed)


def test_next_turn_hits_prompt_and_output_in_whole_blocks() -> None:
    model = EngineModel(PROFILE)
    first = Request("r1", chain(("system", 100), ("task", 50)), 30)
    finish(model, first, 0.0)
    following = first.conversation().extended("tool", 40)
    done = finish(model, Request("r2", following, 10), 2000.0)
    assert done.cached_tokens == (150 + 29) // 16 * 16  # the last output token was never computed


def test_shared_system_prompt_is_shared_and_last_token_recomputed() -> None:
    model = EngineModel(PROFILE)
    finish(model, Request("r1", chain(("system", 160), ("one", 50)), 4), 0.0)
    assert finish(model, Request("r2", chain(("system", 160), ("two", 50)), 4), 2000.0).cached_tokens == 160
    assert finish(model, Request("r3", chain(("system", 160)), 4), 4000.0).cached_tokens == 144
    stats = model.stats()
    assert (stats.prefix_query_tokens, stats.prefix_hit_tokens) == (210 + 210 + 160, 160 + 144)
    assert (stats.prompt_tokens, stats.generation_tokens, stats.finished) == (580, 12, 3)


def test_least_recently_used_tail_is_evicted_first() -> None:
    model = EngineModel(PROFILE, kv_tokens=16 * 20)
    finish(model, Request("old", chain(("old", 160)), 1), 0.0)
    finish(model, Request("new", chain(("new", 96)), 1), 2000.0)
    finish(model, Request("big", chain(("big", 128)), 1), 4000.0)  # 4 blocks are free, 4 of "old" must go
    assert model.stats().idle_blocks == 20
    assert finish(model, Request("old2", chain(("old", 160), ("x", 1)), 1), 6000.0).cached_tokens == 96
    # "old2" needed five new blocks, which were the last five of "new".
    assert finish(model, Request("new2", chain(("new", 96), ("x", 1)), 1), 8000.0).cached_tokens == 16


def test_last_comer_is_preempted_and_finishes_later() -> None:
    model = EngineModel(PROFILE, kv_tokens=16 * 10)
    model.submit(0.0, Request("a", chain(("a", 64)), 60))
    model.submit(0.0, Request("b", chain(("b", 64)), 60))
    events = model.advance(100.0)
    assert [type(e).__name__ for e in events] == [
        "FirstToken",
        "FirstToken",
        "Preempted",
        "Finished",
        "Finished",
    ]
    preempted = events[2]
    assert isinstance(preempted, Preempted)
    assert preempted.request_id == "b"
    assert preempted.generated_tokens == 17  # at 81 tokens each needs a sixth block
    assert [e.request_id for e in events[3:]] == ["a", "b"]
    assert model.stats().preemptions == 1


def test_progress_is_known_at_any_time() -> None:
    model = EngineModel(PROFILE)
    model.submit(0.0, Request("r", chain(("a", 16)), 50))
    first = model.next_event_at()
    assert first is not None
    model.advance(first)
    assert model.generated("r") == 1
    step = 13.5e-3
    model.advance(first + 10.5 * step)
    assert model.generated("r") == 11
    assert model.stats().generation_tokens == 11
    model.advance(100.0)
    with pytest.raises(KeyError):
        model.generated("r")


def test_abort_frees_blocks_at_once_in_every_phase() -> None:
    model = EngineModel(replace(PROFILE, max_running=2))
    model.submit(0.0, Request("decoding", chain(("a", 100)), 500))
    model.advance(1.0)
    model.submit(1.0, Request("prefilling", chain(("b", 50_000)), 5))
    model.submit(1.0, Request("waiting", chain(("c", 100)), 5))
    model.advance(1.5)
    stats = model.stats()
    assert (stats.running, stats.waiting) == (2, 1)
    assert stats.used_blocks > 50_000 // 16
    assert model.abort(1.5, "waiting")
    assert model.abort(1.5, "prefilling")
    assert model.stats().used_blocks < 40
    assert model.abort(1.5, "decoding")
    stats = model.stats()
    assert (stats.running, stats.waiting, stats.used_blocks, stats.aborted) == (0, 0, 0, 3)
    assert not model.abort(1.5, "decoding")
    assert model.advance(100.0) == []
    assert model.next_event_at() is None


def test_flush_needs_an_idle_engine_and_restart_does_not() -> None:
    model = EngineModel(PROFILE)
    finish(model, Request("r", chain(("a", 160)), 4), 0.0)
    model.submit(2000.0, Request("s", chain(("a", 160)), 400))
    model.advance(2001.0)
    assert not model.flush(2001.0)
    assert model.restart(2001.0) == ("s",)
    assert model.advance(2002.0) == []
    assert model.stats().idle_blocks == 0
    assert finish(model, Request("t", chain(("a", 160)), 4), 3000.0).cached_tokens == 0
    assert model.flush(5000.0)
    assert finish(model, Request("u", chain(("a", 160)), 4), 6000.0).cached_tokens == 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("r", chain(("a", 1000)), 1000), "need 125 KV blocks; the replica has 100"),
        (Request("r", chain(("a", 131_072)), 1), "the model takes 131072"),
        (Request("r", chain(("a", 10)), 0), "at least one"),
        (Request("r", Chain.of(()), 5), "at least one"),
        (Request("r", chain(("a", 10)), 5, (("x", 3),)), "do not add up"),
    ],
)
def test_requests_that_can_never_run_are_refused(request_: Request, message: str) -> None:
    model = EngineModel(PROFILE, kv_tokens=1600)
    with pytest.raises(RequestRefusedError, match=message):
        model.submit(0.0, request_)
    assert model.stats().waiting == 0


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="less than one block"):
        EngineModel(PROFILE, kv_tokens=15)
    model = EngineModel(PROFILE)
    model.submit(5.0, Request("r", chain(("a", 10)), 5))
    with pytest.raises(RequestRefusedError, match="in use"):
        model.submit(5.0, Request("r", chain(("a", 10)), 5))
    with pytest.raises(ValueError, match="backwards"):
        model.advance(4.0)


class Recorder:
    """A mirror of the cache, kept from its events alone."""

    def __init__(self) -> None:
        self.blocks: dict[int, str] = {}
        self.clears = 0

    def stored(self, chain: Chain, first: int, end: int, request_id: str) -> None:
        for block in range(first, end):
            identity = chain.identity(16 * block + 16)
            assert identity not in self.blocks
            if block:
                assert chain.identity(16 * block) in self.blocks, "a block without its parent"
            self.blocks[identity] = request_id

    def removed(self, chain: Chain, first: int, end: int) -> None:
        for block in range(first, end):
            del self.blocks[chain.identity(16 * block + 16)]

    def cleared(self) -> None:
        self.blocks.clear()
        self.clears += 1


def test_block_events_mirror_the_cache() -> None:
    recorder = Recorder()
    model = EngineModel(PROFILE, kv_tokens=16 * 60, block_observer=recorder)
    at = 0.0
    for number in range(60):
        prompt = chain(("system", 50), (f"s{number % 7}", 40 + 30 * (number % 5)))
        model.submit(at, Request(f"r{number}", prompt, 1 + number * 7 % 40))
        at += 0.02
        model.advance(at)
    model.advance(1000.0)
    assert model.stats().preemptions > 0
    assert len(recorder.blocks) == model.stats().idle_blocks
    assert model.flush(1000.0)
    assert recorder.blocks == {}


@pytest.mark.slow
def test_cost_of_a_turn_does_not_depend_on_its_length() -> None:
    """A loose guard: 1,000 warm turns of 100,000 tokens cost no more than a few times those of 1,000 tokens."""

    def seconds(length: int) -> float:
        model = EngineModel(PROFILE)
        prompt = chain(("a", length))
        started = time.perf_counter()
        for number in range(1000):
            model.submit(model.stats().at, Request(str(number), prompt, 50))
            prompt = prompt.extended(("output", str(number)), 8)
            while (due := model.next_event_at()) is not None:
                model.advance(due)
        return time.perf_counter() - started

    assert sys.implementation.name == "cpython"
    assert seconds(100_000) < 5 * seconds(1_000)
