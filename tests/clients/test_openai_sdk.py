"""The `openai` package, unmodified, through the gateway: every dialect of it, streamed and whole, each one session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from fake_engine import cuts, event, fake_engine
from gateway_kit import MODEL, Front, emulated, fronted, until, words

from tao.core.events import TurnFinished, TurnKind
from tao.emulator import Emulator, parse_script

pytestmark = pytest.mark.clients

SCRIPT = parse_script(
    """
[[rule]]
turn = 1
text = "I look around first."
bash = "ls -la && sleep 3"

[[rule]]
turn = 2
bash = "make test"

[[rule]]
turn_min = 3
text = "All tests pass now."
""",
    "script.toml",
)
BASH: dict[str, Any] = {
    "name": "bash",
    "description": "Run a command",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
SYSTEM = "You fix bugs in this repository. " * 40


@asynccontextmanager
async def scene(**settings: Any) -> AsyncIterator[tuple[openai.AsyncOpenAI, Front, Emulator]]:
    """The SDK, a gateway, one scripted replica."""
    async with (
        emulated(script=SCRIPT) as replica,
        fronted(replica.url, **settings) as front,
        openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="key-1", max_retries=0) as client,
    ):
        yield client, front, replica


async def assert_one_session(front: Front, turns: int) -> dict[str, Any]:
    """All turns were one session's, whose usage the core has seen; returns it as `/state` shows it."""
    await until(lambda: not front.turns())
    (session,) = (await front.sessions()).values()
    assert session["turns_finished"] == turns
    ended = front.events(TurnFinished)
    last = ended[-1].usage
    assert session["footprint_tokens"] == last.prompt_tokens + last.output_tokens
    assert [event.kind for event in front.events_of_turns()] == [TurnKind.MAIN] * turns
    if turns > 1:
        assert last.cached_tokens > 0, "the second turn extends the first, so its prefix is in the cache"
        assert last.cached_tokens <= last.prompt_tokens
    (evidence,) = session["evidence"].values()
    assert evidence["tokens"] == session["footprint_tokens"]
    return session


async def test_chat_with_tools() -> None:
    async with scene() as (client, front, _):
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "fix the bug"},
        ]
        tools: Any = [{"type": "function", "function": BASH}]
        for _turn in range(3):
            answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": "ok " * 20}
                for call in message.tool_calls or []
            ]
        assert answer.choices[0].message.content == "All tests pass now."
        assert answer.usage is not None
        await assert_one_session(front, 3)
        first, second, third = front.events(TurnFinished)
        assert [(tool.name, tool.command_head, tool.sleep_seconds) for tool in first.tools] == [
            ("bash", "ls", 3.0)
        ]
        assert [(tool.name, tool.command_head) for tool in second.tools] == [("bash", "make")]
        assert third.tools == ()


async def test_chat_streamed_with_tools() -> None:
    async with scene() as (client, front, _):
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "fix the bug"},
        ]
        tools: Any = [{"type": "function", "function": BASH}]
        for _turn in range(3):
            calls: dict[int, dict[str, Any]] = {}
            text = ""
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=messages,
                tools=tools,
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for piece in choice.delta.tool_calls or []:
                        assert piece.function is not None
                        call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                        call["id"] += piece.id or ""
                        call["name"] += piece.function.name or ""
                        call["arguments"] += piece.function.arguments or ""
            told = [
                {
                    "id": c["id"],
                    "type": "function",
                    "function": {"name": c["name"], "arguments": c["arguments"]},
                }
                for c in calls.values()
            ]
            messages.append(
                {"role": "assistant", "content": text or None, **({"tool_calls": told} if told else {})}
            )
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in told]
        assert text == "All tests pass now."
        await assert_one_session(front, 3)
        assert [tool.name for event in front.events(TurnFinished) for tool in event.tools] == ["bash", "bash"]


async def test_chat_streamed_without_usage_is_counted() -> None:
    async with scene() as (client, front, _):
        messages: list[Any] = [{"role": "user", "content": words(400)}]
        stream = await client.chat.completions.create(
            model=MODEL, messages=messages, stream=True, max_tokens=50
        )
        text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        assert text
        await until(lambda: not front.turns())
        (finished,) = front.events(TurnFinished)
        assert finished.usage is None
        (session,) = (await front.sessions()).values()
        assert 380 < session["footprint_tokens"] < 480


@pytest.mark.parametrize("stream", [True, False])
async def test_completions(stream: bool) -> None:
    async with scene() as (client, front, _):
        prompt = SYSTEM
        for turn in range(3):
            prompt += f"\nturn {turn}: " + words(100)
            if stream:
                options: Any = {"include_usage": True}
                pieces = await client.completions.create(
                    model=MODEL, prompt=prompt, max_tokens=20, stream=True, stream_options=options
                )
                prompt += "".join([c.choices[0].text async for c in pieces if c.choices])
            else:
                answer = await client.completions.create(model=MODEL, prompt=prompt, max_tokens=20)
                prompt += answer.choices[0].text
        await assert_one_session(front, 3)


async def test_responses() -> None:
    async with scene() as (client, front, _):
        items: list[Any] = [{"role": "user", "content": "fix the bug"}]
        tools: Any = [{"type": "function", **BASH}]
        for _turn in range(3):
            answer = await client.responses.create(model=MODEL, instructions=SYSTEM, input=items, tools=tools)
            for item in answer.output:
                items.append(item.model_dump(exclude_none=True))
                if item.type == "function_call":
                    items.append({"type": "function_call_output", "call_id": item.call_id, "output": "ok"})
        assert answer.output_text == "All tests pass now."
        await assert_one_session(front, 3)
        assert [tool.name for event in front.events(TurnFinished) for tool in event.tools] == ["bash", "bash"]


async def test_responses_streamed() -> None:
    async with scene() as (client, front, _):
        items: list[Any] = [{"role": "user", "content": "fix the bug"}]
        tools: Any = [{"type": "function", **BASH}]
        for _turn in range(3):
            stream = await client.responses.create(
                model=MODEL, instructions=SYSTEM, input=items, tools=tools, stream=True
            )
            final: Any = None
            async for event in stream:
                if event.type == "response.completed":
                    final = event.response
            assert final is not None
            for item in final.output:
                items.append(item.model_dump(exclude_none=True))
                if item.type == "function_call":
                    items.append({"type": "function_call_output", "call_id": item.call_id, "output": "ok"})
        assert final.output_text == "All tests pass now."
        await assert_one_session(front, 3)


async def test_a_stated_session_id() -> None:
    async with scene() as (client, front, _):
        for turn in range(2):
            await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hello" + " again" * turn}],
                extra_headers={"X-Session-ID": "fix-issue-17"},
                max_tokens=4,
            )
        (session,) = await front.sessions()
        assert session.endswith("/fix-issue-17")


@pytest.mark.parametrize(
    ("half", "error"), [(b"", "the engine broke off"), (b'data: {"choices":[{"del', "Connection error")]
)
async def test_a_cut_stream_is_an_error_of_the_sdk(half: bytes, error: str) -> None:
    """Behind half an event as well, where its own error would be one of JSON."""
    async with (
        fake_engine(default=cuts(event({"content": "a"}) + half)) as engine,
        fronted(engine.url) as front,
        openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="key-1", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hello"}]
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        with pytest.raises(openai.APIError, match=error):
            [chunk async for chunk in stream]


async def test_errors_reach_the_sdk_as_its_own() -> None:
    async with scene() as (client, _front, _):
        messages: Any = [{"role": "user", "content": "hello"}]
        with pytest.raises(openai.NotFoundError, match="The model `absent` does not exist"):
            await client.chat.completions.create(model="absent", messages=messages)
        wrong: Any = "hello"
        with pytest.raises(openai.BadRequestError, match="'messages' must be an array"):
            await client.chat.completions.create(model=MODEL, messages=wrong)
        assert [model.id async for model in client.models.list()] == [MODEL]
