"""Sessions through `tao serve` on a real SGLang: what it knows of the cache, token by token, and what it does not."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_kit import until, words

from tao.engines import read_status
from tests.engine.talks import TOKEN, Talk, watching
from tests.sglang.sglang_replica import SglangReplica

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]

AT_ONCE, TURNS = 6, 3
BEGINNING_TOKENS = 8
"""What all prompts begin with, and at most what two of them may share by chance: with pages of one token it is kept."""


async def stream_of(http: httpx.AsyncClient) -> dict[str, Any]:
    """What the gateway says of the replica's KV events."""
    (stream,) = (await http.get("/state")).json()["kv_events"]
    return dict(stream)


async def test_what_is_left_of_a_session_is_known_to_the_token(
    sglang_replica: SglangReplica, tmp_path: Path
) -> None:
    async with watching(tmp_path, sglang_replica.url) as http:
        talk = Talk(http, "known")
        for tokens in (300, 40, 40):
            left = talk.tokens if talk.usages else 0
            await talk.say(tokens)
            # A random model's answer is not read back as the same tokens.
            assert talk.cached_tokens >= 0.8 * left
            await until(talk.is_watched)
            ((known, _),) = (await talk.evidence()).values()
            assert known == talk.tokens - 1  # the last token of an answer is not computed
        again = await Talk(http, "again", messages=talk.messages[:-1]).ask()
        assert again.cached_tokens == again.usages[0]["prompt_tokens"] - 1
        await until(again.is_watched)  # although its prompt was there in full


async def test_sessions_at_once_are_recognised(sglang_replica: SglangReplica, tmp_path: Path) -> None:
    async with watching(tmp_path, sglang_replica.url) as http:
        before = await stream_of(http)

        async def session(number: int) -> None:
            talk = Talk(http, f"at-once-{number}", more={"max_tokens": 8 + 3 * number})
            for turn in range(TURNS):
                await talk.say(100 + 31 * number + 17 * turn)
                for tokens, _ in (await talk.evidence()).values():
                    assert tokens <= talk.tokens

        await asyncio.gather(*map(session, range(AT_ONCE)))

        async def settled() -> bool:
            now = await stream_of(http)
            seen = [now[key] - before[key] for key in ("recognised", "unrecognised")]
            return bool(sum(seen) >= AT_ONCE * TURNS)  # the turn that warmed it up may be among them

        await until(settled)
        now = await stream_of(http)
        assert now["recognised"] - before["recognised"] >= 0.75 * AT_ONCE * TURNS
        assert (now["echoes"], now["streams"][0]["block_tokens"], now["streams"][0]["losses"]) == (
            False,
            1,
            0,
        )


async def test_a_client_that_names_itself_leaves_the_others_recognised(
    sglang_replica: SglangReplica, tmp_path: Path
) -> None:
    async with watching(tmp_path, sglang_replica.url) as http:
        named = await Talk(http, "in-the-body", more={"session_id": "in-the-body"}).say(200)
        await until(named.is_watched)
        other = await Talk(http, "in-the-header").say(150)
        await until(other.is_watched)
        await named.say(40)

        async def known() -> bool:
            """To the last token of each that was computed."""
            told = [set((await talk.evidence()).values()) for talk in (named, other)]
            return told == [{(talk.tokens - 1, "kv-events")} for talk in (named, other)]

        await until(known)
        assert not (await stream_of(http))["echoes"]


async def test_a_flush_through_the_gateway_zeroes_credit_at_once(
    sglang_replica: SglangReplica, tmp_path: Path
) -> None:
    async with watching(tmp_path, sglang_replica.url) as http:
        talk = await Talk(http, "flushed").say(300)
        await until(talk.is_watched)

        async def flushed() -> bool:
            """It refuses while a request runs; the one of a health page is one too."""
            answer = await http.post("/flush_cache", headers=TOKEN)
            (told,) = answer.json()["replicas"]
            assert told["flushed"] or told["why"] == "its cache is in use"
            return answer.status_code == httpx.codes.OK

        await until(flushed)
        assert await talk.is_gone()
        await talk.say(50)
        assert talk.cached_tokens == 0
        await until(talk.is_watched)


async def test_a_flush_behind_its_back_is_seen_at_once(
    sglang_replica: SglangReplica, engine: httpx.AsyncClient, tmp_path: Path
) -> None:
    """SGLang tells of it without another request, unlike vLLM."""
    async with watching(tmp_path, sglang_replica.url) as http:
        talk = await Talk(http, "surprised").say(300)
        await until(talk.is_watched)

        async def flushed() -> bool:
            return (await engine.post("/flush_cache")).status_code == httpx.codes.OK

        await until(flushed)
        await until(talk.is_gone, seconds_max=2.0)


async def test_an_evicted_session_loses_its_credit_before_it_returns(
    sglang_replica: SglangReplica, tmp_path: Path
) -> None:
    async with watching(tmp_path, sglang_replica.url) as http:
        victim = await Talk(http, "victim").say(600)
        await until(victim.is_watched)
        for number in range(5):
            await Talk(http, f"{number}-pressure").say(2_300)

        async def evicted() -> bool:
            return all(known <= BEGINNING_TOKENS for known, _ in (await victim.evidence()).values())

        await until(evicted)
        await victim.say(50)
        assert victim.cached_tokens <= BEGINNING_TOKENS


async def test_a_replica_behind_long_prefills_stays_up(sglang_replica: SglangReplica, tmp_path: Path) -> None:
    """Its health page waits for a token, so it is late."""
    async with watching(tmp_path, sglang_replica.url) as http:
        early = await Talk(http, "early").say(200)
        await until(early.is_watched)
        long = [Talk(http, f"{number}-long").say(2_200) for number in range(3)]
        for talk in await asyncio.gather(*long):
            assert talk.usages[0]["prompt_tokens"] > 3_000
        assert await early.is_watched()  # of a replica that was lost nothing is


@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_whose_client_hangs_up_is_aborted(
    sglang_replica: SglangReplica, engine: httpx.AsyncClient, tmp_path: Path, stream: bool
) -> None:
    async def running() -> int | None:
        return read_status((await engine.get("/metrics")).content).running

    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": words(60)}],
        "max_tokens": 6_000,
        "ignore_eos": True,
        "stream": stream,
    }
    async with watching(tmp_path, sglang_replica.url) as http:
        asked = asyncio.ensure_future(http.post("/v1/chat/completions", json=body, timeout=120.0))
        await until(running, 60.0)
        asked.cancel()

        async def at_rest() -> bool:
            return await running() == 0

        await until(at_rest, 20.0)
        talk = await Talk(http, "after-it").say(40)
        assert talk.usages[0]["completion_tokens"] == 8
