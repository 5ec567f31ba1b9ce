"""With clients that send nothing extra: `/explain` names the running tool, its command head and when it should be back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web
from fake_engine import Asked, Behaviour, FakeEngine, fake_engine
from gateway_kit import MODEL, Front, emulated, fronted, until

from tao.emulator import parse_script
from tests.clients.mini_swe_agent import COMPLETION_LINE, executable, run_task

COMMAND = "cd /repo && sleep 40 && pytest -q"
ARGUMENTS = json.dumps({"command": COMMAND, "timeout": 90})


def sse(*events: dict[str, Any] | str) -> bytes:
    """An event stream; a text is data as it stands, a document with a type is named by it."""
    pieces = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        data = event if isinstance(event, str) else json.dumps(event)
        pieces.append(f"{name}data: {data}\n\n")
    return "".join(pieces).encode()


def chat_stream() -> bytes:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice], **more}

    half = len(ARGUMENTS) // 2
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "bash", "arguments": ""}}
    counts = {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320}
    return sse(
        chunk({"role": "assistant", "content": "I run the tests – ü."}),
        chunk({"tool_calls": [head]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[:half]}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[half:]}}]}),
        chunk({}, "tool_calls", usage=counts),
        "[DONE]",
    )


def messages_stream() -> bytes:
    half = len(ARGUMENTS) // 2
    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 300, "output_tokens": 1},
    }
    block = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
    pieces = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": part},
        }
        for part in (ARGUMENTS[:half], ARGUMENTS[half:])
    ]
    return sse(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *pieces,
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    )


def responses_stream() -> bytes:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "status": "completed"}
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": MODEL,
        "status": "completed",
        "output": [{**item, "arguments": ARGUMENTS}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 300,
            "output_tokens": 20,
            "total_tokens": 320,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    half = len(ARGUMENTS) // 2
    named = {"item_id": "fc_1", "output_index": 0}
    events: list[dict[str, Any]] = [
        {
            "type": "response.created",
            "response": {**response, "status": "in_progress", "output": [], "usage": None},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", **named, "delta": ARGUMENTS[:half]},
        {"type": "response.function_call_arguments.delta", **named, "delta": ARGUMENTS[half:]},
        {"type": "response.function_call_arguments.done", **named, "name": "bash", "arguments": ARGUMENTS},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "arguments": ARGUMENTS}},
        {"type": "response.completed", "response": response},
    ]
    return sse(*({**event, "sequence_number": number} for number, event in enumerate(events)))


def fenced_stream() -> bytes:
    """A text-protocol agent's answer: the command stands in a fenced block."""
    text = f"THOUGHT: I run the tests.\n\n```bash\n{COMMAND}\n```\n"

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}

    words = [chunk({"content": text[start : start + 7]}) for start in range(0, len(text), 7)]
    return sse(*words, chunk({}, "stop"), "[DONE]")


def byte_by_byte(stream: bytes) -> Behaviour:
    """An answer whose every byte is a chunk of its own."""

    async def behave(asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked.http)
        for position in range(len(stream)):
            await response.write(stream[position : position + 1])
        await response.write_eof()
        return response

    return behave


@asynccontextmanager
async def behind(stream: bytes) -> AsyncIterator[tuple[Front, FakeEngine]]:
    async with fake_engine(default=byte_by_byte(stream)) as engine, fronted(engine.url) as front:
        yield front, engine


async def explained(front: Front) -> dict[str, Any]:
    """What `/explain` tells of the only session."""
    await until(lambda: not front.turns())
    (session,) = await front.sessions()
    told: dict[str, Any] = (await front.http.get(f"/explain/{session}")).json()
    return told


async def assert_explained(front: Front, timeout_seconds: float | None = 90) -> None:
    told = await explained(front)
    assert told["phase"] == "acting"
    (asked,) = told["tool_evidence"]
    assert asked["source"] == "the response asked for it"
    assert 0 <= asked["age_seconds"] < 10
    declared = {} if timeout_seconds is None else {"timeout_seconds": timeout_seconds}
    assert asked["tools"] == [{"name": "bash", "command_head": "sleep", "sleep_seconds": 40, **declared}]
    predicted = told["values"]["return"]
    assert predicted["tools"] == ["bash sleep"]
    assert 20 < predicted["returns_in_seconds"] < 60, "the sleep says when"


# --- bytes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "stream", "body", "timeout_seconds"),
    [
        ("/v1/chat/completions", chat_stream, {"messages": [{"role": "user", "content": "x"}]}, 90),
        ("/v1/chat/completions", fenced_stream, {"messages": [{"role": "user", "content": "x"}]}, None),
        (
            "/v1/messages",
            messages_stream,
            {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9},
            90,
        ),
        ("/v1/responses", responses_stream, {"input": "x"}, 90),
    ],
    ids=["chat", "fenced", "messages", "responses"],
)
async def test_a_stream_of_single_bytes(
    path: str, stream: Callable[[], bytes], body: dict[str, Any], timeout_seconds: float | None
) -> None:
    async with behind(stream()) as (front, _):
        answer = await front.http.post(path, json={"model": MODEL, "stream": True, **body})
        assert answer.content == stream(), "passed on unchanged"
        await assert_explained(front, timeout_seconds)


# --- SDKs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.clients
async def test_the_openai_sdk() -> None:
    tool: Any = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    async with (
        behind(chat_stream()) as (front, _),
        openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="key-1", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], tools=[tool], stream=True
        )
        assert [chunk async for chunk in stream]
        await assert_explained(front)


@pytest.mark.clients
async def test_the_anthropic_sdk() -> None:
    tool: Any = {"name": "bash", "input_schema": {"type": "object"}}
    async with (
        behind(messages_stream()) as (front, _),
        anthropic.AsyncAnthropic(base_url=front.url, api_key="key-1", max_retries=0) as client,
    ):
        async with client.messages.stream(
            model=MODEL, messages=[{"role": "user", "content": "x"}], tools=[tool], max_tokens=99
        ) as events:
            answer = await events.get_final_message()
        assert answer.stop_reason == "tool_use"
        await assert_explained(front)


# --- mini-swe-agent -------------------------------------------------------------------------------------------------------

SCRIPT = parse_script(
    f"""
[[rule]]
turn = 1
text = "I wait for the build."
bash = "sleep 4 && wc -l task.txt"

[[rule]]
turn_min = 2
text = "It is done."
bash = "echo {COMPLETION_LINE}"
""",
    "script.toml",
)


def is_installed() -> bool:
    try:
        executable()
    except FileNotFoundError:
        return False
    return True


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="mini-swe-agent is not installed: run `make clients`")
async def test_mini_swe_agent_while_its_command_runs(tmp_path: Path) -> None:
    (tmp_path / "task.txt").write_text("a\nb\n")
    async with emulated(script=SCRIPT, model="tiny") as replica, fronted(replica.url) as front:
        agent = asyncio.create_task(asyncio.to_thread(run_task, f"{front.url}/v1", "Count.", tmp_path))
        seen: dict[str, Any] = {}

        async def acts() -> bool:
            for session in await front.sessions():
                told = (await front.http.get(f"/explain/{session}")).json()
                if told["phase"] == "acting":
                    seen.update(told)
            return bool(seen)

        await until(acts, seconds_max=60)
        (tool,) = seen["tool_evidence"][-1]["tools"]
        assert (tool["name"], tool["command_head"], tool["sleep_seconds"]) == ("bash", "sleep", 4.0)
        assert seen["values"]["return"]["tools"] == ["bash sleep"]
        assert 0 < seen["values"]["return"]["returns_in_seconds"] < 10
        await agent
