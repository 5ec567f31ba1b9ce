"""What `tao serve` knows of the caches of two real vLLM: block by block, through flushes, evictions and a death."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from gateway_kit import plain_http, until

from tests.engine.talks import TOKEN, Talk, watching
from tests.engine.vllm_replica import VllmReplica

# The engines take a minute and more to start, inside the first test's time.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

BLOCK = 32
Pair = tuple[VllmReplica, VllmReplica]


async def test_what_is_left_of_a_session_is_known_to_the_block(vllm_pair: Pair, tmp_path: Path) -> None:
    async with watching(tmp_path, *(replica.url for replica in vllm_pair)) as http:
        talks = [await Talk(http, f"known-{number}").say(300) for number in range(4)]
        assert {talk.replicas[0] for talk in talks} == {replica.url[7:] for replica in vllm_pair}
        for talk in talks:
            await until(talk.is_watched)
            ((tokens, _),) = (await talk.evidence()).values()
            assert tokens == (talk.tokens - 1) // BLOCK * BLOCK  # the last token of an answer is not computed
        alone = talks[0]
        while len(alone.replicas) < 2 or alone.replicas[-1] != alone.replicas[0]:
            await alone.say(50)
        assert alone.cached_tokens >= 300


async def test_a_flush_through_the_gateway_zeroes_credit_at_once(vllm_pair: Pair, tmp_path: Path) -> None:
    async with watching(tmp_path, vllm_pair[0].url) as http:
        talk = await Talk(http, "flushed").say(300)
        await until(talk.is_watched)
        answer = await http.post("/v1/tao/flush", headers=TOKEN)
        assert answer.json() == {
            "success": True,
            "replicas": [{"replica": vllm_pair[0].url[7:], "flushed": True}],
        }
        assert await talk.is_gone()
        await talk.say(50)
        assert talk.cached_tokens == 0
        await until(talk.is_watched)


async def test_a_flush_behind_its_back_is_seen_with_the_next_step(vllm_pair: Pair, tmp_path: Path) -> None:
    async with watching(tmp_path, vllm_pair[0].url) as http:
        talk = await Talk(http, "surprised").say(300)
        await until(talk.is_watched)
        async with plain_http(vllm_pair[0].url) as engine:
            assert (await engine.post("/reset_prefix_cache")).json() == {"success": True}
        await Talk(http, "another").say(50)
        await until(talk.is_gone, seconds_max=2.0)


async def test_a_session_that_is_evicted_loses_its_credit_before_it_returns(
    vllm_pair: Pair, tmp_path: Path
) -> None:
    async with watching(tmp_path, vllm_pair[1].url) as http:
        victim = await Talk(http, "victim").say(1_200)
        await until(victim.is_watched)
        for number in range(4):
            await Talk(http, f"pressure-{number}").say(1_600)
        await until(victim.is_gone)
        await victim.say(50)
        assert victim.cached_tokens <= BLOCK


async def test_sessions_of_a_killed_replica_go_on_on_the_other(vllm_pair: Pair, tmp_path: Path) -> None:
    """The last test of this replica, whose death is for good."""
    stays, dies = vllm_pair
    async with watching(tmp_path, stays.url, dies.url, policy="tao") as http:
        talks = [await Talk(http, f"orphan-{number}").say(200) for number in range(4)]
        assert dies.url[7:] in {talk.replicas[0] for talk in talks}
        os.killpg(dies.pid, signal.SIGKILL)
        for talk in talks:
            await talk.say(50)
            assert talk.replicas[-1] == stays.url[7:]
        # A request that fails has the dead replica looked at, and what was known of it goes with the answer to that look.
        for talk in talks:
            await until(partial(talk.is_nowhere_but_on, stays.url[7:]))
