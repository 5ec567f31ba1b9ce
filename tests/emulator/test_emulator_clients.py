"""Unmodified SDKs against the emulator: streams and whole answers, and a scripted task with a tool, to its
end.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest

from tao.emulator import Emulator, parse_script

Start = Callable[..., Awaitable[Emulator]]

SCRIPT = """
[[rule]]
last = "total 8"
text = "The folder has two files. Ünïcode ✓"

[[rule]]
turn = 1
text = "I look."
bash = "ls -l"
"""
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "bash", "parameters": PARAMETERS}}
FLAT_TOOL: Any = {"type": "function", "name": "bash", "parameters": PARAMETERS}
MESSAGES_TOOL: Any = {"name": "bash", "input_schema": PARAMETERS}
FINAL = "The folder has two files. Ünïcode ✓"


@pytest.fixture
async def emulator(start: Start) -> Emulator:
    return await start(script=parse_script(SCRIPT, "test.toml"))


async def test_openai_chat_task(emulator: Emulator) -> None:
    async with openai.AsyncOpenAI(base_url=emulator.url + "/v1", api_key="x") as client:
        messages: list[Any] = [{"role": "user", "content": "what is here?"}]
        first = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
        choice = first.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        call: Any = choice.message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"command": "ls -l"}
        messages += [
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "total 8"},
        ]
        text, cached = "", 0
        async with client.chat.completions.stream(
            model="m", messages=messages, tools=[CHAT_TOOL], stream_options={"include_usage": True}
        ) as stream:
            final = await stream.get_final_completion()
        text = final.choices[0].message.content or ""
        assert final.usage is not None
        assert final.usage.prompt_tokens_details is not None
        cached = final.usage.prompt_tokens_details.cached_tokens or 0
    assert text == FINAL
    assert first.usage is not None
    assert first.usage.total_tokens - 17 <= cached <= first.usage.total_tokens


async def test_openai_chat_tool_call_in_a_stream(emulator: Emulator) -> None:
    async with (
        openai.AsyncOpenAI(base_url=emulator.url + "/v1", api_key="x") as client,
        client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "what?"}], tools=[CHAT_TOOL]
        ) as stream,
    ):
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == "I look."
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "bash"
    assert json.loads(message.tool_calls[0].function.arguments) == {"command": "ls -l"}


async def test_openai_responses_task(emulator: Emulator) -> None:
    async with openai.AsyncOpenAI(base_url=emulator.url + "/v1", api_key="x") as client:
        async with client.responses.stream(model="m", input="what is here?", tools=[FLAT_TOOL]) as stream:
            first = await stream.get_final_response()
        call: Any = first.output[-1]
        assert (call.type, json.loads(call.arguments)) == ("function_call", {"command": "ls -l"})
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "total 8"}
        items: list[Any] = [{"role": "user", "content": "what is here?"}]
        items += [item.model_dump(exclude_none=True) for item in first.output]
        second = await client.responses.create(model="m", input=[*items, output], tools=[FLAT_TOOL])
    assert second.output_text == FINAL
    assert second.usage is not None
    assert first.usage is not None
    cached = second.usage.input_tokens_details.cached_tokens
    assert first.usage.total_tokens - 17 <= cached <= first.usage.total_tokens


async def test_openai_completions(emulator: Emulator) -> None:
    async with openai.AsyncOpenAI(base_url=emulator.url + "/v1", api_key="x") as client:
        whole = await client.completions.create(model="m", prompt="unscripted", max_tokens=9)
        stream = await client.completions.create(model="m", prompt="unscripted", max_tokens=9, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
        assert text == whole.choices[0].text
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="other", prompt="x")


async def test_anthropic_task(emulator: Emulator) -> None:
    async with anthropic.AsyncAnthropic(base_url=emulator.url, api_key="x") as client:
        messages: list[Any] = [{"role": "user", "content": "what is here?"}]
        async with client.messages.stream(
            model="m", max_tokens=500, messages=messages, tools=[MESSAGES_TOOL]
        ) as stream:
            first = await stream.get_final_message()
        assert first.stop_reason == "tool_use"
        call: Any = first.content[-1]
        assert call.input == {"command": "ls -l"}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "total 8"}
        messages += [
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in first.content],
            },
            {"role": "user", "content": [result]},
        ]
        second = await client.messages.create(
            model="m", max_tokens=500, messages=messages, tools=[MESSAGES_TOOL]
        )
        counted = await client.messages.count_tokens(model="m", messages=messages, tools=[MESSAGES_TOOL])
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(model="other", max_tokens=5, messages=messages)
    block: Any = second.content[0]
    assert block.text == FINAL
    cached = second.usage.cache_read_input_tokens or 0
    total = first.usage.input_tokens + first.usage.output_tokens
    assert total - 17 <= cached <= total
    assert second.usage.input_tokens + cached == counted.input_tokens
