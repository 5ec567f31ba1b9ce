"""Engines that fail in every way, seen by the client: one clear answer each, one retry at most, nothing left booked."""

import asyncio
import gzip
from itertools import pairwise

import httpx
import msgspec
import pytest
from aiohttp import web
from fake_engine import Asked, begin_stream, cuts, drops, event, fake_engine, says, silent, status, usage
from gateway_kit import fronted, until, words

from tao.core.commands import DispatchTurn, Reason
from tao.core.events import TurnFailed, TurnFinished
from tao.core.phases import Away
from tao.gateway.config import KeepAlive, Timeouts

ANTHROPIC = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
SIGNS = KeepAlive(grace_seconds=0.02, period_seconds=0.02)


# --- errors of the engine pass through --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [400, 401, 404, 422, 429, 500, 503])
async def test_an_error_page_passes_unchanged(code: int) -> None:
    page = b'{"error":{"message":"no such model","odd":[1, 2]}}'
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(status(code, page, **{"retry-after": "7", "x-request-id": "r1"}))
        answer = await front.chat(session="s")
        assert (answer.status_code, answer.content) == (code, page)
        assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("7", "r1")
        assert answer.headers["x-tao-session"] == "public/s"
        assert len(engine.asked) == 1, "an engine that answers is not asked twice"
        assert front.reserved_tokens(engine.url) == 0
        assert isinstance(front.session("s").phase, Away)  # type: ignore[union-attr]
        (failed,) = front.events(TurnFailed)
        assert "no such model" in failed.cause
        assert (await front.chat(session="s")).status_code == 200


async def test_an_error_page_of_a_streaming_request() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(status(404, b'{"error":"x"}'))
        answer = await front.chat(session="s", stream=True)
        assert (answer.status_code, answer.content) == (404, b'{"error":"x"}')


async def test_an_error_for_a_held_stream_becomes_an_event_of_the_stream() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate)) as engine,
        fronted(engine.url, keep_alive=SIGNS) as front,
    ):
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        async with front.streaming(words(2000), "second") as held:
            lines = held.aiter_lines()
            assert await anext(lines) == ": keep-alive"
            engine.then(status(400, b'{"error":{"message":"prompt too long"}}'))
            gate.set()
            await first
            front.end(front.session("first"))  # type: ignore[arg-type]
            rest = [line async for line in lines if line.startswith("data:")]
        assert len(rest) == 2
        assert "prompt too long" in rest[0]
        assert rest[1] == "data: [DONE]"


# --- the engine breaks off ----------------------------------------------------------------------------------------


async def test_a_cut_stream_ends_with_an_error_event_and_a_cut_connection() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(cuts(event({"content": "a"})))
        got = await front.cut_stream("/v1/chat/completions", CHAT)
        first, error, done, _ = got.split(b"\n\n")
        assert b'"content":"a"' in first
        assert "broke off" in msgspec.json.decode(error.removeprefix(b"data: "))["error"]["message"]
        assert done == b"data: [DONE]"
        (failed,) = front.events(TurnFailed)
        assert not failed.retryable
        assert len(engine.asked) == 1, "bytes are out, so it is not asked again"
        assert front.reserved_tokens(engine.url) == 0


async def test_a_cut_anthropic_stream_ends_with_its_error_event() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(cuts(b'event: message_start\ndata: {"type":"message_start","message":{"id":"m1"}}\n\n'))
        got = await front.cut_stream("/v1/messages", ANTHROPIC)
        name, data = got.split(b"\n\n")[1].split(b"\n")
        assert name == b"event: error"
        document = msgspec.json.decode(data.removeprefix(b"data: "))
        assert (document["type"], document["error"]["type"]) == ("error", "api_error")


@pytest.mark.parametrize("ask_usage", [True, False])
async def test_a_stream_that_is_cut_in_the_middle_of_an_event_is_only_cut(ask_usage: bool) -> None:
    """An error behind half an event would be read as part of it, and `[DONE]` as the end of a whole answer."""
    whole, half = event({"content": "a"}), b'data: {"choices":[{"del'
    async with fake_engine() as engine, fronted(engine.url, ask_usage=ask_usage) as front:
        engine.then(cuts(whole, half))
        got = await front.cut_stream("/v1/chat/completions", CHAT)
        assert got == (whole if ask_usage else whole + half)
        (failed,) = front.events(TurnFailed)
        assert not failed.retryable


async def test_a_cut_body_that_is_no_stream_is_only_cut() -> None:
    async def half(asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "100"})
        await response.prepare(asked.http)
        await response.write(b'{"half":')
        assert asked.http.transport is not None
        asked.http.transport.close()
        return response

    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(half)
        with pytest.raises(httpx.RemoteProtocolError):
            await front.chat(session="s")
        assert front.reserved_tokens(engine.url) == 0


async def test_a_stream_that_falls_silent_is_given_up() -> None:
    never = asyncio.Event()
    bounds = Timeouts(silence_seconds=0.1)
    async with (
        fake_engine(default=says("a b", gate=never)) as engine,
        fronted(engine.url, timeouts=bounds) as front,
    ):
        got = await front.cut_stream("/v1/chat/completions", CHAT)
        assert b"sent nothing for 0.1 s" in got
        await until(lambda: engine.aborted == 1)


# --- a failed first byte ------------------------------------------------------------------------------------------


async def test_a_failed_first_byte_is_tried_once_on_the_other_replica() -> None:
    async with (
        fake_engine(default=drops()) as bad,
        fake_engine(default=says("ok")) as good,
        fronted(bad.url, good.url) as front,
    ):
        answer = await front.chat(session="s")
        assert answer.status_code == 200
        assert answer.headers["x-tao-decision"] == f"replica={good.url[7:]}; reason=retry"
        assert (len(bad.asked), len(good.asked)) == (1, 1)
        assert bad.asked[0].raw == good.asked[0].raw
        assert front.reserved_tokens(bad.url) == 0
        assert front.reserved_tokens(good.url) > 0
        assert [c.attempt for c in front.commands(DispatchTurn)] == [1, 2]


async def test_it_is_tried_only_once() -> None:
    async with (
        fake_engine(default=drops()) as one,
        fake_engine(default=drops()) as two,
        fake_engine(default=drops()) as three,
        fronted(one.url, two.url, three.url) as front,
    ):
        answer = await front.chat(session="s")
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_failed"
        assert len(one.asked) + len(two.asked) + len(three.asked) == 2
        assert all(front.reserved_tokens(engine.url) == 0 for engine in (one, two, three))


async def test_alone_there_is_no_second_try() -> None:
    async with fake_engine(default=drops()) as engine, fronted(engine.url) as front:
        answer = await front.http.post("/v1/messages", json=ANTHROPIC)
        assert answer.status_code == 502
        assert answer.json() == {
            "type": "error",
            "error": {
                "type": "api_error",
                "message": "the replica failed before it answered, and no other one could answer in its place",
            },
        }
        assert len(engine.asked) == 1


async def test_a_first_byte_that_does_not_come_in_time() -> None:
    never = asyncio.Event()
    bounds = Timeouts(first_byte_seconds=0.1)
    async with (
        fake_engine(default=silent(never)) as slow,
        fake_engine(default=says("ok")) as good,
        fronted(slow.url, good.url, timeouts=bounds) as front,
    ):
        answer = await front.chat(session="s")
        assert answer.status_code == 200
        await until(lambda: slow.aborted == 1)
        (failed,) = front.events(TurnFailed)
        assert "no headers within 0.1 s" in failed.cause


async def test_the_retry_of_a_held_stream_stays_a_stream() -> None:
    gate = asyncio.Event()
    outcomes = iter((drops(), drops(), says("ok")))

    async def drops_twice(asked: Asked) -> web.StreamResponse:
        """Whichever replica is asked first, on the connection that was kept and on a new one."""
        return await next(outcomes)(asked)

    async with fake_engine(capacity_tokens=4096) as one, fake_engine(capacity_tokens=4096) as two:
        one.then(says("a b", gate=gate), drops_twice, drops_twice)
        two.then(says("a b", gate=gate), drops_twice, drops_twice)
        async with fronted(one.url, two.url, keep_alive=SIGNS) as front:
            running = [front.chatting(words(2000), name, stream=True) for name in ("first", "second")]
            await until(lambda: (one.now, two.now) == (1, 1))
            async with front.streaming(words(2000), "third") as held:
                lines = held.aiter_lines()
                assert await anext(lines) == ": keep-alive"
                gate.set()
                await asyncio.gather(*running)
                for name in ("first", "second"):
                    front.end(front.session(name))  # type: ignore[arg-type]
                told = [line async for line in lines]
            rest = [line for line in told if line.startswith("data:")]
            [decision] = [line for line in told if line.startswith(": x-tao-decision: ")]
            assert decision.endswith("reason=retry")
            assert '"content":"ok "' in rest[0]
            assert rest[-1] == "data: [DONE]"
            retried = [c for c in front.commands(DispatchTurn) if c.reason is Reason.RETRY]
            assert len(retried) == 1


# --- usage ------------------------------------------------------------------------------------------------------------


async def test_usage_becomes_the_footprint_and_the_cache_evidence() -> None:
    async with (
        fake_engine(default=says("ok", counts=usage(900, 50, 640))) as engine,
        fronted(engine.url) as front,
    ):
        await front.chat(session="s")
        session = front.session("s")
        assert session is not None
        assert session.footprint_tokens == 950
        (evidence,) = session.evidence.values()
        assert evidence.tokens == 950
        (finished,) = front.events(TurnFinished)
        assert (finished.usage.prompt_tokens, finished.usage.cached_tokens) == (900, 640)


@pytest.mark.parametrize("stream", [True, False])
async def test_without_usage_the_tokens_are_counted(stream: bool) -> None:
    text = "word " * 200
    async with fake_engine(default=says(text, counts={})) as engine, fronted(engine.url) as front:
        await front.chat(words(1000), "s", stream=stream, max_tokens=1000)
        (finished,) = front.events(TurnFinished)
        assert finished.usage is None
        session = front.session("s")
        assert session is not None
        assert 1100 < session.footprint_tokens < 1300


async def test_the_estimate_follows_what_the_engine_counts() -> None:
    async with (
        fake_engine(default=says("ok", counts=usage(3000, 10))) as engine,
        fronted(engine.url) as front,
    ):
        for turn in range(3):
            await front.chat(words(1000 + turn), "s")
        first, *later = (event.prompt_tokens for event in front.events_of_turns())
        assert first == pytest.approx(1000, rel=0.05)
        assert later[-1] == pytest.approx(3000, rel=0.05)


# --- bytes ------------------------------------------------------------------------------------------------------------


async def test_a_compressed_stream_passes_as_it_is_and_is_understood() -> None:
    async def compressed(asked: Asked) -> web.StreamResponse:
        assert "gzip" in asked.headers["accept-encoding"]
        body = gzip.compress(
            event({"content": "a"}) + event({}, "stop", usage=usage(70, 7)) + b"data: [DONE]\n\n"
        )
        headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(asked.http)
        for start, end in pairwise(range(0, len(body) + 7, 7)):
            await response.write(body[start:end])
        await response.write_eof()
        return response

    async with fake_engine(default=compressed) as engine, fronted(engine.url) as front:
        answer = await front.chat(session="s", stream=True, headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.text.endswith("data: [DONE]\n\n")
        (finished,) = front.events(TurnFinished)
        assert finished.usage.prompt_tokens == 70


async def test_a_held_stream_whose_headers_are_out_gets_plain_text() -> None:
    """Its headers name no content coding, so the engine must not choose one."""
    gate = asyncio.Event()

    async def wants_to_compress(asked: Asked) -> web.StreamResponse:
        if "gzip" in asked.headers.get("accept-encoding", ""):
            return await status(500, b"compressed")(asked)
        response = await begin_stream(asked)
        await response.write(event({}, "stop", usage=usage(70, 7)))
        await response.write_eof()
        return response

    async with fake_engine(capacity_tokens=4096, default=wants_to_compress) as engine:
        engine.then(says("a b", gate=gate))
        async with fronted(engine.url, keep_alive=SIGNS) as front:
            first = front.chatting(words(2000), "first", stream=True)
            await until(lambda: engine.now == 1)
            async with front.streaming(words(2000), "second") as held:
                lines = held.aiter_lines()
                assert await anext(lines) == ": keep-alive"
                gate.set()
                await first
                front.end(front.session("first"))  # type: ignore[arg-type]
                rest = [line async for line in lines if line.startswith("data:")]
            assert '"prompt_tokens":70' in rest[0]


async def test_bodies_and_unknown_headers_reach_the_engine_unchanged() -> None:
    raw = b'{ "model":"m", "odd" : [1.0, 1e3, "\\u00e9"],"messages":[{"role":"user","content":"hi"}] }'
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer secret",
        "x-odd": "1",
        "anthropic-beta": "x",
    }
    async with fake_engine() as engine, fronted(engine.url) as front:
        answer = await front.http.post("/v1/chat/completions?beta=true&x=%2F", content=raw, headers=headers)
        assert answer.status_code == 200
        (asked,) = engine.asked
        assert asked.raw == raw
        assert asked.http.path_qs == "/v1/chat/completions?beta=true&x=%2F"
        assert {name: asked.headers[name] for name in headers} == headers
        (session,) = front.gateway.driver.scheduler.view.sessions
        assert "secret" not in session
