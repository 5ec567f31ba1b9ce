"""A client that hangs up, in each phase of its turn: everything it held is free at once, on the engine too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web
from fake_engine import Asked, Behaviour, begin_stream, event, fake_engine, says, silent, usage
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.events import ClientLeft, TurnFinished, TurnStopped
from tao.core.phases import Acting, Away
from tao.gateway.config import KeepAlive

AT_ONCE_SECONDS = 1.0  # one period of the decision


@asynccontextmanager
async def leaving(
    front: Front, text: str, session: str, **more: object
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A request in the background whose client hangs up when the block ends; then nothing of it may be left soon."""
    task = front.chatting(text, session, **more)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    left_at = asyncio.get_running_loop().time()
    await until(lambda: front.events(ClientLeft))
    assert asyncio.get_running_loop().time() - left_at < AT_ONCE_SECONDS


async def test_while_held() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate)) as engine,
        fronted(engine.url) as front,
    ):
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        async with leaving(front, words(2000), "second"):
            await until(lambda: front.held() == 1)
        assert front.held() == 0
        assert front.session("second") is None
        assert len(engine.asked) == 1
        gate.set()
        assert (await first).status_code == 200
        metrics = (await front.http.get("/metrics")).text
    assert 'tao_turns_total{outcome="client-left"} 1.0' in metrics
    assert 'tao_turns_total{outcome="finished"} 1.0' in metrics


async def test_while_held_with_headers_out() -> None:
    gate = asyncio.Event()
    signs = KeepAlive(grace_seconds=0.02, period_seconds=0.02)
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate)) as engine,
        fronted(engine.url, keep_alive=signs) as front,
    ):
        first = front.chatting(words(2000), "first", stream=True)
        await until(lambda: engine.now == 1)
        async with front.streaming(words(2000), "second") as held:
            assert held.headers["x-tao-decision"] == "held"
            async for line in held.aiter_lines():
                assert line == ": keep-alive"
                break
        await until(lambda: front.held() == 0)
        assert front.session("second") is None
        gate.set()
        await first


@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_byte(stream: bool) -> None:
    never = asyncio.Event()
    async with fake_engine(default=silent(never)) as engine, fronted(engine.url) as front:
        async with leaving(front, words(500), "s", stream=stream):
            await until(lambda: engine.now == 1)
            assert front.reserved_tokens(engine.url) > 500
        assert front.reserved_tokens(engine.url) == 0
        assert isinstance(front.session("s").phase, Away)  # type: ignore[union-attr]
        await until(lambda: engine.aborted == 1, AT_ONCE_SECONDS)


async def test_while_streaming() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as engine, fronted(engine.url) as front:
        async with front.streaming(words(500), "s") as response:
            async for _ in response.aiter_bytes():
                break
            assert front.reserved_tokens(engine.url) > 500
        await until(lambda: front.events(TurnStopped), AT_ONCE_SECONDS)
        assert front.reserved_tokens(engine.url) == 0
        await until(lambda: engine.aborted == 1, AT_ONCE_SECONDS)
        session = front.session("s")
        assert session is not None
        assert isinstance(session.phase, Away)
        assert session.evidence, "its prompt was computed, so it is in the cache"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_emulated_engine_stops_decoding(stream: bool) -> None:
    long = {"max_tokens": 5000, "ignore_eos": True, "stream": stream}
    async with emulated(speed=1.0) as replica, fronted(replica.url) as front:
        async with leaving(front, "write a book", "s", **long):
            await until(lambda: replica.service.model.stats().running == 1)
        await until(lambda: replica.service.model.stats().running == 0, AT_ONCE_SECONDS)
        assert replica.service.loop.finished_reasons["abort"] == 1
        assert front.reserved_tokens(replica.url) == 0


async def test_an_emulated_engine_stops_computing_the_prompt() -> None:
    async with emulated(speed=0.05) as replica, fronted(replica.url) as front:
        async with leaving(front, words(20_000), "s"):
            await until(lambda: replica.service.model.stats().running == 1)
            assert front.reserved_tokens(replica.url) > 20_000
        await until(lambda: replica.service.model.stats().running == 0, AT_ONCE_SECONDS)
        assert front.reserved_tokens(replica.url) == 0


async def test_the_session_comes_back_after_it_left() -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("a b", gate=gate))
        async with leaving(front, "hello", "s", stream=True):
            await until(lambda: engine.now == 1)
        assert (await front.chat("hello", "s")).status_code == 200
        session = front.session("s")
        assert session is not None
        assert session.turns_finished == 1


async def test_two_turns_of_one_session_and_one_client_leaves() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as engine, fronted(engine.url) as front:
        stays = front.chatting("hello", "s", stream=True)
        await until(lambda: engine.now == 1)
        async with leaving(front, "hello there", "s", stream=True):
            await until(lambda: engine.now == 2)
            assert front.turns() == 2
        assert front.turns() == 1
        assert front.reserved_tokens(engine.url) > 0
        gate.set()
        assert (await stays).status_code == 200
        session = front.session("s")
        assert session is not None
        assert session.turns_finished == 1


COMPLETED = (
    b'data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c1",'
    b'"name":"exec_command","arguments":"{\\"cmd\\":\\"ls\\"}"}}\n\n'
    b'data: {"type":"response.completed","response":{"id":"r1","status":"completed",'
    b'"usage":{"input_tokens":500,"output_tokens":7}}}\n\n'
)
STOPPED = (
    b'data: {"type":"message_start","message":{"id":"m1","usage":{"input_tokens":500,"output_tokens":0}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1",'
    b'"name":"exec_command","input":{"cmd":"ls"}}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
CALL = {"index": 0, "id": "c1", "function": {"name": "exec_command", "arguments": '{"cmd":"ls"}'}}
DONE = (
    event({"tool_calls": [CALL]})
    + event({}, "tool_calls", usage=usage(500, 7))  # the counts of the last chunk
    + b"data: [DONE]\n\n"
)


def lingers(pieces: bytes, gate: asyncio.Event) -> Behaviour:
    """An event stream whose body is not ended before the gate opens."""

    async def behave(asked: Asked) -> web.StreamResponse:
        response = await begin_stream(asked)
        await response.write(pieces)
        await gate.wait()
        return response

    return behave


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/v1/responses", COMPLETED), ("/v1/messages", STOPPED), ("/v1/chat/completions", DONE)],
)
async def test_after_the_last_event_is_an_end_like_any_other(path: str, answer: bytes) -> None:
    """Codex reads its answer up to the event that says that it is complete, and no further."""
    body = {"model": "m", "stream": True, "input": "hi", "messages": [{"role": "user", "content": "hi"}]}
    last = answer.rstrip().rpartition(b"\n")[2].decode()
    never = asyncio.Event()
    async with fake_engine(default=lingers(answer, never)) as engine, fronted(engine.url) as front:
        named = {"x-session-id": "s"}
        async with front.http.stream("POST", path, json=body, headers=named) as response:
            async for line in response.aiter_lines():
                if line == last:
                    break
        await until(lambda: not front.turns())
        (finished,) = front.events(TurnFinished)
        assert front.events(ClientLeft) == []
        assert (finished.usage.prompt_tokens, finished.usage.output_tokens) == (500, 7)
        assert [(tool.name, tool.command_head) for tool in finished.tools] == [("exec_command", "ls")]
        session = front.session("s")
        assert session is not None
        assert isinstance(session.phase, Acting)
        await until(lambda: engine.aborted == 1, AT_ONCE_SECONDS)
