"""The `anthropic` package, unmodified, through the gateway: messages streamed and whole, tools, counting, errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from fake_engine import cuts, fake_engine, says, usage
from gateway_kit import MODEL, Front, emulated, fronted, until, words

from tao.core.events import TurnFinished
from tao.gateway.config import KeepAlive, SchedulerConfig
from tests.clients.test_openai_sdk import BASH, SCRIPT, SYSTEM, assert_one_session

pytestmark = pytest.mark.clients

TOOLS: Any = [{"name": "bash", "description": "Run a command", "input_schema": BASH["parameters"]}]


@asynccontextmanager
async def sdk(front: Front) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The SDK, pointed at a gateway."""
    async with (
        anthropic.AsyncAnthropic(base_url=front.url, api_key="key-1", max_retries=0) as client,
    ):
        yield client


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[anthropic.AsyncAnthropic, Front]]:
    """The SDK, a gateway, one scripted replica."""
    async with (
        emulated(script=SCRIPT) as replica,
        fronted(replica.url) as front,
        sdk(front) as client,
    ):
        yield client, front


@pytest.mark.parametrize("stream", [True, False])
async def test_messages_with_tools(stream: bool) -> None:
    async with scene() as (client, front):
        messages: list[Any] = [{"role": "user", "content": "fix the bug"}]
        for _turn in range(3):
            request: Any = {
                "model": MODEL,
                "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
                "messages": messages,
                "tools": TOOLS,
                "max_tokens": 200,
            }
            if stream:
                async with client.messages.stream(**request) as events:
                    answer: Any = await events.get_final_message()
            else:
                answer = await client.messages.create(**request)
            messages.append(
                {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
            )
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "ok " * 20}
                for block in answer.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results or "thanks"})
        assert answer.content[0].text == "All tests pass now."
        assert answer.usage.cache_read_input_tokens > 0
        await assert_one_session(front, 3)
        first, second, _ = front.events(TurnFinished)
        assert [(tool.name, tool.command_head) for tool in first.tools] == [("bash", "ls")]
        assert [(tool.name, tool.command_head) for tool in second.tools] == [("bash", "make")]


async def test_claude_codes_headers_name_the_session() -> None:
    async with scene() as (client, front):
        for turn in range(2):
            await client.messages.create(
                model=MODEL,
                max_tokens=8,
                messages=[{"role": "user", "content": "hello" + " again" * turn}],
                extra_headers={"x-claude-code-session-id": "session-1"},
                extra_query={"beta": "true"},
            )
        (session,) = (await front.sessions()).values()
        assert session["id"].endswith("/session-1")
        assert session["turns_finished"] == 2


async def test_counting_tokens_is_no_turn() -> None:
    async with scene() as (client, front):
        counted = await client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": words(100)}]
        )
        assert 90 < counted.input_tokens < 130
        assert front.events_of_turns() == []


async def test_a_held_stream_and_an_overloaded_pool() -> None:
    """Pings while it is held; 529 when the pool is full, which the SDK knows."""
    gate = asyncio.Event()
    bounds: Any = {
        "keep_alive": KeepAlive(grace_seconds=0.02, period_seconds=0.02),
        "scheduler": SchedulerConfig(held_turns_max=1),
    }
    request: Any = {"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": words(2000)}]}
    async with (
        fake_engine(capacity_tokens=4096, default=says("a b", gate=gate, counts=usage(2000, 10))) as engine,
        fronted(engine.url, **bounds) as front,
        sdk(front) as client,
    ):
        first = front.chatting(words(2000), "first")
        await until(lambda: engine.now == 1)
        held = await client.messages.create(**request, stream=True)
        assert front.held() == 1
        with pytest.raises(anthropic.APIStatusError) as refused:
            await client.messages.create(**request)
        assert refused.value.status_code == 529
        assert "waiting pool of TAO is full" in refused.value.message
        await held.close()
        await until(lambda: front.held() == 0)
        gate.set()
        await first


async def test_a_cut_stream_is_an_error_of_the_sdk() -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n'
    async with fake_engine(default=cuts(start)) as engine, fronted(engine.url) as front, sdk(front) as client:
        stream = await client.messages.create(
            model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "hello"}], stream=True
        )
        with pytest.raises(anthropic.APIStatusError, match="the engine broke off"):
            [event async for event in stream]


async def test_half_an_event_is_an_error_of_the_sdk() -> None:
    half = b'event: message_start\ndata: {"type":"mess'
    async with fake_engine(default=cuts(half)) as engine, fronted(engine.url) as front, sdk(front) as client:
        stream = await client.messages.create(
            model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "hello"}], stream=True
        )
        with pytest.raises(Exception, match="peer closed connection"):  # of whichever HTTP client it uses
            [event async for event in stream]


async def test_errors_reach_the_sdk_as_its_own() -> None:
    async with scene() as (client, _):
        messages: Any = [{"role": "user", "content": "hello"}]
        with pytest.raises(anthropic.NotFoundError, match="The model `absent` does not exist"):
            await client.messages.create(model="absent", max_tokens=8, messages=messages)
        wrong: Any = {"role": "user"}
        with pytest.raises(anthropic.BadRequestError, match="'messages' must be an array"):
            await client.messages.create(model=MODEL, max_tokens=8, messages=wrong)
