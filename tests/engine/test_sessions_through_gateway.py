"""Ten sessions of three turns with tools through `tao serve` on a real vLLM: whole sessions, and what was cached."""

import asyncio
import json
import signal
from typing import Any

import httpx
import pytest
from gateway_kit import plain_http, until, words
from prometheus_client.parser import text_string_to_metric_families
from tao_process import TaoProcess, serve_arguments, tao

from tests.engine.vllm_replica import VllmReplica

# The engine takes half a minute and more to start, inside the first test's time.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SESSIONS, TURNS = 10, 3
BLOCK_TOKENS = 32
ANSWER_SECONDS_MAX = 120.0
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
COMMANDS = ("ls", "make test", "git status")
# The model is random, so the engine is told what its answers look like; the call is then parsed as any other.
CALL = rf'<tool_call>\n\{{"name": "bash", "arguments": \{{"command": "({"|".join(COMMANDS)})"\}}\}}\n</tool_call>'


async def converse(http: httpx.AsyncClient, model: str, number: int) -> list[dict[str, Any]]:
    """One session; the even ones name themselves, every third one streams. The usage of each turn."""
    headers = {"x-session-id": f"agent-{number}"} if number % 2 == 0 else {}
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Agent {number}: " + words(300)}]
    usages = []
    for _ in range(TURNS):
        body = {
            "model": model,
            "messages": messages,
            "tools": [TOOL],
            "structured_outputs": {"regex": CALL},
            "max_tokens": 128,
        }
        ask = streamed if number % 3 == 0 else whole
        call, usage = await ask(http, body, headers)
        assert call["function"]["name"] == "bash"
        assert json.loads(call["function"]["arguments"])["command"] in COMMANDS
        usages.append(usage)
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": words(60)},
        ]
    return usages


async def whole(
    http: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = await http.post("/v1/chat/completions", json=body, headers=headers, timeout=ANSWER_SECONDS_MAX)
    assert answer.status_code == 200, answer.text
    assert "replica=" in answer.headers["x-tao-decision"]
    document = answer.json()
    return document["choices"][0]["message"]["tool_calls"][0], document["usage"]


async def streamed(
    http: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = await http.post("/v1/chat/completions", json=body, headers=headers, timeout=ANSWER_SECONDS_MAX)
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    call: dict[str, Any] = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    usage: dict[str, Any] = {}
    for document in map(json.loads, events):
        assert "error" not in document, document
        usage = document.get("usage") or usage
        for choice in document["choices"]:
            for piece in choice["delta"].get("tool_calls") or []:
                call["id"] = piece.get("id") or call["id"]
                for key in ("name", "arguments"):
                    call["function"][key] += piece["function"].get(key) or ""
    return call, usage


async def test_ten_sessions_of_three_turns(vllm_replica: VllmReplica) -> None:
    async with tao(*serve_arguments(vllm_replica.url)) as gateway:
        await gateway.ready()
        async with plain_http(gateway.url) as http:
            one_by_one = asyncio.Semaphore(4)

            async def session(number: int) -> list[dict[str, Any]]:
                async with one_by_one:
                    return await converse(http, vllm_replica.model, number)

            usages = await asyncio.gather(*map(session, range(SESSIONS)))

            async def settled() -> bool:
                """An engine's KV events come after the answer that they are about."""
                return all(map(is_believed, (await http.get("/state")).json()["sessions"]))

            await until(settled)
            state = (await http.get("/state")).json()
            page = (await http.get("/metrics")).text
        await assert_drained(gateway)
    (engine,) = state["engines"]
    assert (engine["engine"], engine["capacity_tokens"]) == ("vllm", vllm_replica.capacity_tokens)
    assert_sessions(state["sessions"], usages)
    assert_tokens(page, usages)


async def assert_drained(gateway: TaoProcess) -> None:
    gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == 0, gateway.story()
    assert b"Traceback" not in gateway.err


def assert_sessions(sessions: list[dict[str, Any]], usages: list[list[dict[str, Any]]]) -> None:
    """Each conversation is one session, and the core believes what the engine said of its cache."""
    assert len(sessions) == SESSIONS
    named = sorted(s["id"] for s in sessions if "agent-" in s["id"])
    assert named == [f"public/agent-{number}" for number in range(0, SESSIONS, 2)]
    for session in sessions:
        assert session["turns_finished"] == TURNS
        assert session["phase"] == "acting"
        assert session["tools"] == ["bash"]
        assert is_believed(session)
    footprints = sorted(session["footprint_tokens"] for session in sessions)
    assert footprints == sorted(u[-1]["prompt_tokens"] + u[-1]["completion_tokens"] for u in usages)


def is_believed(session: dict[str, Any]) -> bool:
    """All of it, or, once the engine's KV events have told, its whole blocks; an answer's last token is not computed."""
    (evidence,) = session["evidence"].values()
    whole_blocks = (session["footprint_tokens"] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    return evidence["tokens"] in {session["footprint_tokens"], whole_blocks}


def cached(usage: dict[str, Any]) -> int:
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def assert_tokens(page: str, usages: list[list[dict[str, Any]]]) -> None:
    """The gateway has counted what the engine told, cached tokens included; later turns find their prefix."""
    assert all(cached(turn) > 0 for turns in usages for turn in turns[1:])
    seen = {
        sample.labels["kind"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "tao_tokens_total"
    }
    every = [turn for turns in usages for turn in turns]
    assert seen["cached"] == sum(map(cached, every)) > 0
    assert seen["prompt"] == sum(turn["prompt_tokens"] for turn in every)
    assert seen["output"] == sum(turn["completion_tokens"] for turn in every)
