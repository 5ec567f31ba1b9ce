"""Engines that leave the count of cached tokens out of an answer where it is zero: a total miss is known all the same."""

from typing import Any

import msgspec
import pytest
from aiohttp import web
from fake_engine import MODEL, Asked, Behaviour, begin_stream, fake_engine, says, usage
from gateway_kit import Front, fronted, until

from tao.core.events import TurnFinished
from tao.core.session import EvidenceSource

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
DIALECTS = [(CHAT, False), (CHAT, True), (MESSAGES, False), (MESSAGES, True)]


def found(path: str, cached: int) -> Behaviour:
    """An answer to 1,000 tokens, as vLLM and SGLang give it: the cached ones are told where there are any."""
    if path == CHAT:
        return says("well", counts=usage(1_000, 10, cached or None))
    told: dict[str, Any] = {"input_tokens": 1_000 - cached, "output_tokens": 10}
    if cached:
        told["cache_read_input_tokens"] = cached

    async def behave(asked: Asked) -> web.StreamResponse:
        message = {"id": "m1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        ends = {"stop_reason": "end_turn"}
        if not asked.stream:
            return web.json_response(message | ends | {"usage": told})
        response = await begin_stream(asked)
        for event in (
            {
                "type": "message_start",
                "message": message | {"usage": {"input_tokens": 0, "output_tokens": 0}},
            },
            {"type": "message_delta", "delta": ends, "usage": told},
            {"type": "message_stop"},
        ):
            data = msgspec.json.encode(event)
            await response.write(b"event: " + str(event["type"]).encode() + b"\ndata: " + data + b"\n\n")
        await response.write_eof()
        return response

    return behave


async def ask(front: Front, path: str, session: str, stream: bool) -> int | None:
    """The cached tokens that the core is told of one turn."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": session}],
        "max_tokens": 8,
        "stream": stream,
    }
    answer = await front.http.post(path, json=body, headers={"x-session-id": session})
    assert answer.status_code == 200
    return front.events(TurnFinished)[-1].usage.cached_tokens  # type: ignore[no-any-return]


@pytest.mark.parametrize(("path", "stream"), DIALECTS)
async def test_once_a_replica_has_told_cached_tokens_none_told_are_none_cached(
    path: str, stream: bool
) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(*(found(path, cached) for cached in (0, 800, 0, 0)))
        assert await ask(front, path, "first", stream) is None
        assert await ask(front, path, "first", stream) == 800
        assert await ask(front, path, "first", stream) == 0
        assert await ask(front, path, "other", not stream) == 0  # streamed or not, it is the same report
        (other,) = (front.session("other"),)
        assert other is not None
        assert [known.source for known in other.evidence.values()] == [EvidenceSource.CACHED_TOKENS]


async def test_what_is_told_in_one_dialect_or_by_one_replica_says_nothing_of_another() -> None:
    async with (
        fake_engine() as one,
        fake_engine() as other,
        fronted(one.url, other.url, policy="round-robin") as front,
    ):
        one.default, other.default = found(CHAT, 800), found(CHAT, 0)
        told = {await ask(front, CHAT, f"s{number}", False) for number in range(4)}
        assert told == {800, None}
        one.default = other.default = found(MESSAGES, 0)
        assert {await ask(front, MESSAGES, f"m{number}", False) for number in range(4)} == {None}


async def test_a_zero_that_is_told_says_nothing_of_what_a_missing_count_means() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("well", counts=usage(1_000, 10, 0)), found(CHAT, 0))
        assert await ask(front, CHAT, "s", False) == 0
        assert await ask(front, CHAT, "s", False) is None


async def test_a_replica_that_comes_back_has_told_nothing_yet() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        (member,) = front.gateway.fleet
        engine.then(found(CHAT, 800), found(CHAT, 0))
        assert await ask(front, CHAT, "s", False) == 800
        await engine.die()
        await until(lambda: not member.up)
        await engine.start()
        await until(lambda: member.up)
        assert await ask(front, CHAT, "s", False) is None
