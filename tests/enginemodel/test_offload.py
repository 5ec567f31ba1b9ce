"""Host memory behind the KV cache: what it saves, what that costs, and that it is off unless asked for."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.enginemodel import Chain, EngineModel, Finished, Profile, ProfileError, Request, load_profile
from tao.enginemodel.host_tier import HostTier
from tao.enginemodel.profile import parse_profile

PROFILE = load_profile("qwen3-32b-tp2-h100")
SMALL_KV_TOKENS = 2_048


def played(model: EngineModel, turns: list[tuple[int, int]]) -> list[Finished]:
    """One request after another: (session, new tokens), each extending its session's last conversation."""
    conversations: dict[int, Chain] = {}
    finished: list[Finished] = []
    at = 0.0
    for number, (session, tokens) in enumerate(turns):
        known = conversations.get(session)
        key = ("prompt", number)
        prompt = Chain.of([(key, tokens)]) if known is None else known.extended(key, tokens)
        if prompt.tokens > SMALL_KV_TOKENS - 64:
            continue
        request = Request(f"r{number}", prompt, 8)
        conversations[session] = request.conversation()
        model.submit(at, request)
        *_, last = model.advance(at + 100.0)
        assert isinstance(last, Finished)
        finished.append(last)
        at += 100.0
    return finished


def computed_tokens(model: EngineModel) -> int:
    stats = model.stats()
    return stats.prefix_query_tokens - stats.prefix_hit_tokens - stats.reloaded_tokens


TURNS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 700)), min_size=1, max_size=25)


@given(TURNS)
@settings(max_examples=60, deadline=None)
def test_unlimited_and_infinitely_fast_it_saves_as_much_as_a_large_cache(
    turns: list[tuple[int, int]],
) -> None:
    offloading = EngineModel(PROFILE.with_offload(10**6, inf), SMALL_KV_TOKENS)
    large = EngineModel(PROFILE, 10**6)
    told, expected = played(offloading, turns), played(large, turns)
    assert computed_tokens(offloading) == computed_tokens(large)
    assert [event.cached_tokens for event in told] == [event.cached_tokens for event in expected]
    assert [event.at for event in told] == pytest.approx([event.at for event in expected])


@given(TURNS, st.integers(0, 4_000))
@settings(max_examples=40, deadline=None)
def test_it_never_computes_more_than_without(turns: list[tuple[int, int]], capacity_tokens: int) -> None:
    offloading = EngineModel(PROFILE.with_offload(capacity_tokens, 1e5), SMALL_KV_TOKENS)
    without = EngineModel(PROFILE, SMALL_KV_TOKENS)
    played(offloading, turns)
    played(without, turns)
    assert computed_tokens(offloading) <= computed_tokens(without)
    assert offloading.stats().prefix_hit_tokens <= offloading.stats().prefix_query_tokens


def test_loading_takes_as_long_as_the_rate_says_and_counts_as_cached() -> None:
    turns = [(0, 1_000), (1, 1_500), (0, 100)]  # the second displaces the first
    fast, slow = (EngineModel(PROFILE.with_offload(4_096, rate), SMALL_KV_TOKENS) for rate in (inf, 1_000.0))
    quick, late = played(fast, turns)[-1], played(slow, turns)[-1]
    reloaded = slow.stats().reloaded_tokens
    assert reloaded > 0
    assert late.cached_tokens == quick.cached_tokens
    assert late.cached_tokens == slow.stats().prefix_hit_tokens + reloaded
    assert late.at - quick.at == pytest.approx(reloaded / 1_000.0)


def test_capacity_zero_is_the_engine_without() -> None:
    turns = [(number % 3, 300) for number in range(12)]
    assert played(EngineModel(PROFILE.with_offload(0), SMALL_KV_TOKENS), turns) == played(
        EngineModel(PROFILE, SMALL_KV_TOKENS), turns
    )


def test_a_flush_and_a_restart_empty_it() -> None:
    for empty in (EngineModel.flush, EngineModel.restart):
        model = EngineModel(PROFILE.with_offload(10_000), SMALL_KV_TOKENS)
        played(model, [(0, 1_000), (1, 1_500)])
        empty(model, 1_000.0)
        model.submit(1_000.0, Request("again", Chain.of([(("prompt", 0), 1_000)]), 1))
        *_, last = model.advance(2_000.0)
        assert isinstance(last, Finished)
        assert last.cached_tokens == 0


def test_the_block_that_was_evicted_longest_ago_goes_first() -> None:
    tier, chain = HostTier(3, 16), Chain.of([("a", 160)])
    tier.removed(chain, 0, 4)  # its tail comes first, and is dropped first
    assert len(tier) == 3
    assert tier.load(chain, 0, 10) == 3
    assert len(tier) == 0


def test_profiles_say_what_they_offload() -> None:
    text = _file_text()
    plain = parse_profile(text, "mine.toml")
    assert plain.offload_capacity_tokens == 0
    given_rate = parse_profile(
        f"{text}\n[offload]\ncapacity_tokens = 500_000\nreload_tokens_per_second = 2e5\n", "mine.toml"
    )
    assert (given_rate.offload_capacity_tokens, given_rate.offload_reload_tokens_per_second) == (500_000, 2e5)
    by_link = parse_profile(f"{text}\n[offload]\ncapacity_tokens = 500_000\n", "mine.toml")
    assert by_link.offload_reload_tokens_per_second == pytest.approx(64e9 / plain.kv_bytes_per_token)
    assert replace(by_link, sources=()) == replace(plain.with_offload(500_000), sources=())


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ("capacity_tokens = -1", "offload.capacity_tokens"),
        ("capacity_tokens = 1\nreload_tokens_per_second = 0.0", "offload.reload_tokens_per_second"),
        ("capacity_tokens = 1\nreload_tokens_per_second = nan", "offload.reload_tokens_per_second"),
        ("capacity = 1", "capacity"),
    ],
)
def test_an_offload_that_makes_no_sense_is_refused_by_name(section: str, named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        parse_profile(f"{_file_text()}\n[offload]\n{section}\n", "mine.toml")


def _file_text() -> str:
    folder = resources.files("tao.enginemodel").joinpath("profiles")
    return folder.joinpath(f"{PROFILE.name}.toml").read_text(encoding="utf-8")


def test_the_default_is_off() -> None:
    assert isinstance(PROFILE, Profile)
    assert PROFILE.offload_capacity_tokens == 0
