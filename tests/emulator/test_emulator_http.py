"""The emulator's endpoints over real HTTP: answers, usage, errors, metrics, life cycle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tao.emulator import Emulator, EmulatorConfig, start_emulator
from tao.enginemodel import load_profile

Start = Callable[..., Awaitable[Emulator]]
Http = aiohttp.ClientSession


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def post(http: Http, emulator: Emulator, path: str, body: Any, status: int = 200) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post(emulator.url + path, data=data) as response:
        text = await response.text()
        assert response.status == status, text
        return json.loads(text)


async def events(http: Http, emulator: Emulator, path: str, body: Any) -> list[tuple[str | None, Any]]:
    """Server-sent events as (event, data); data "[DONE]" stays a string."""
    found: list[tuple[str | None, Any]] = []
    async with http.post(emulator.url + path, json={**body, "stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        name: str | None = None
        async for raw in response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
                found.append((name, data if data == "[DONE]" else json.loads(data)))
                name = None
    return found


async def metrics(http: Http, emulator: Emulator) -> dict[str, float]:
    async with http.get(emulator.url + "/metrics") as response:
        text = await response.text()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "finished_reason" not in sample.labels
    }


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds; the test's time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - the model has no event for each state
        await asyncio.sleep(0.001)


async def test_chat_second_turn_hits_the_first_and_its_answer(start: Start, http: Http) -> None:
    emulator = await start()
    messages = [{"role": "system", "content": "s" * 640}, user("hello " * 100)]
    first = await post(http, emulator, "/v1/chat/completions", {"model": "m", "messages": messages})
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    answer = first["choices"][0]["message"]["content"]
    assert first["usage"]["completion_tokens"] == len(answer) / 4
    messages += [{"role": "assistant", "content": answer}, user("and then?")]
    second = await post(http, emulator, "/v1/chat/completions", {"model": "m", "messages": messages})
    usage = second["usage"]
    before = first["usage"]["total_tokens"]
    assert before - 17 <= usage["prompt_tokens_details"]["cached_tokens"] <= before
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_answers_do_not_depend_on_order_but_on_the_seed(start: Start, http: Http) -> None:
    texts: list[str] = []
    for seed in (1, 1, 2):
        emulator = await start(seed=seed)
        if len(texts) == 1:
            await post(http, emulator, "/v1/chat/completions", {"messages": [user("other")]})
        answer = await post(http, emulator, "/v1/chat/completions", {"messages": [user("hello")]})
        texts.append(answer["choices"][0]["message"]["content"])
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_openai_stream_equals_whole_and_usage_comes_only_when_asked(
    start: Start, http: Http, path: str
) -> None:
    emulator = await start()
    prompt: dict[str, Any] = (
        {"prompt": "hello"} if path == "/v1/completions" else {"messages": [user("hello")]}
    )
    body = {"model": "m", **prompt, "max_tokens": 150, "ignore_eos": True}
    whole = await post(http, emulator, path, body)
    silent = await events(http, emulator, path, body)
    asked = await events(http, emulator, path, {**body, "stream_options": {"include_usage": True}})
    text = whole["choices"][0].get("text") or whole["choices"][0]["message"]["content"]
    for stream in (silent, asked):
        assert stream[-1] == (None, "[DONE]")
        choices = [data["choices"][0] for _, data in stream[:-1] if data["choices"]]
        assert "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices) == text
        assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["length"]
    assert not any("usage" in data for _, data in silent[:-1])
    assert asked[-2][1]["choices"] == []
    assert asked[-2][1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 150
    assert whole["choices"][0]["finish_reason"] == "length"


async def test_messages_usage_leaves_out_cached_tokens(start: Start, http: Http) -> None:
    emulator = await start()
    system: list[dict[str, Any]] = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
        {"type": "text", "text": "rules " * 200, "cache_control": {"type": "ephemeral"}},
    ]
    body = {"model": "m", "max_tokens": 100, "system": system, "messages": [user("hello")]}
    count = await post(http, emulator, "/v1/messages/count_tokens", body)
    first = await post(http, emulator, "/v1/messages", body)
    assert first["usage"]["input_tokens"] == count["input_tokens"]
    assert first["stop_reason"] in {"end_turn", "max_tokens"}
    system[0]["text"] = "x-anthropic-billing-header: cch=2;"  # as Claude Code: another value each time
    stream = await events(http, emulator, "/v1/messages", body)
    names = [name for name, _ in stream]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    usage = stream[-2][1]["usage"]
    assert usage["cache_read_input_tokens"] > 290
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count["input_tokens"]
    assert stream[0][1]["message"]["usage"]["cache_read_input_tokens"] == usage["cache_read_input_tokens"]


async def test_responses_remember_the_conversation(start: Start, http: Http) -> None:
    emulator = await start()
    body = {"model": "m", "input": "hello " * 50, "instructions": "be brief", "max_output_tokens": 40}
    stream = await events(http, emulator, "/v1/responses", body)
    final = stream[-1][1]["response"]
    assert stream[-1][0] == f"response.{final['status']}"
    assert [data["sequence_number"] for _, data in stream] == list(range(len(stream)))
    text = "".join(data["delta"] for name, data in stream if name == "response.output_text.delta")
    assert final["output"][0]["content"][0]["text"] == text
    following = {**body, "input": "more", "previous_response_id": final["id"]}
    second = await post(http, emulator, "/v1/responses", following)
    before = final["usage"]["total_tokens"]
    assert before - 17 <= second["usage"]["input_tokens_details"]["cached_tokens"] <= before
    following["previous_response_id"] = "resp_unknown"
    error = await post(http, emulator, "/v1/responses", following, 404)
    assert "not found" in error["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/chat/completions", b'{"model": "m"', 400, "not valid JSON"),
        ("/v1/chat/completions", b"[]", 400, "must be a JSON object, got array"),
        ("/v1/chat/completions", {"model": "m"}, 400, "'messages' is required"),
        ("/v1/chat/completions", {"messages": {}}, 400, "'messages' must be an array, got object"),
        ("/v1/chat/completions", {"messages": []}, 400, "must not be empty"),
        ("/v1/chat/completions", {"messages": ["x"]}, 400, "'messages[0]' must be an object, got string"),
        ("/v1/chat/completions", {"messages": [{"role": "cat"}]}, 400, "role"),
        ("/v1/chat/completions", {"messages": [user("x")], "max_tokens": 0}, 400, "at least 1"),
        (
            "/v1/chat/completions",
            {"messages": [user("x")], "max_tokens": "many"},
            400,
            "an integer, got string",
        ),
        (
            "/v1/chat/completions",
            {"messages": [user("x")], "max_tokens": 131072},
            400,
            "context length is 131072",
        ),
        ("/v1/chat/completions", {"messages": [user("x")], "n": 2}, 400, "'n'"),
        ("/v1/chat/completions", {"messages": [user("x" * 50_000)]}, 400, "KV blocks"),
        ("/v1/chat/completions", {"model": "no", "messages": [user("x")]}, 404, "`no` does not exist"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "one non-empty string"),
        ("/v1/completions", {"prompt": [1, -1]}, 400, "one non-empty string"),
        (
            "/v1/responses",
            {"input": 3},
            400,
            "'input' must be a non-empty string or array of items, got integer",
        ),
        ("/v1/messages", {"messages": [user("x")]}, 400, "'max_tokens' is required"),
        (
            "/v1/messages",
            {"max_tokens": 5, "messages": [{"role": "user", "content": 5}]},
            400,
            "array of blocks",
        ),
        ("/v1/messages", {"model": "no", "max_tokens": 5, "messages": [user("x")]}, 404, "does not exist"),
        ("/tokenize", {}, 400, "'prompt' or 'messages'"),
        ("/detokenize", {"tokens": [-1]}, 400, "token id -1"),
    ],
)
async def test_bad_requests_get_the_dialects_error(
    start: Start, http: Http, path: str, body: Any, status: int, message: str
) -> None:
    emulator = await start(kv_tokens=3200)
    answer = await post(http, emulator, path, body, status)
    assert message in answer["error"]["message"]
    if path == "/v1/messages":
        expected = "not_found_error" if status == 404 else "invalid_request_error"
        assert (answer["type"], answer["error"]["type"]) == ("error", expected)
    else:
        assert answer["error"]["code"] == status
        assert answer["error"]["type"] == ("NotFoundError" if status == 404 else "BadRequestError")
    assert emulator.service.model.stats().waiting == 0


async def test_body_limit_is_a_setting(start: Start, http: Http) -> None:
    emulator = await start(body_bytes_max=1000)
    answer = await post(http, emulator, "/v1/chat/completions", {"messages": [user("x" * 2000)]}, 413)
    assert "1000" in answer["error"]["message"]


async def test_metrics_page_has_vllms_names(start: Start, http: Http) -> None:
    emulator = await start(kv_tokens=64_000, model='odd"name')
    body = {"messages": [user("hello " * 200)], "max_tokens": 50}
    for _ in range(2):
        await post(http, emulator, "/v1/chat/completions", body)
    page = await metrics(http, emulator)
    assert page["vllm:num_requests_running"] == page["vllm:num_requests_waiting"] == 0
    assert page["vllm:kv_cache_usage_perc"] == 0
    queries, hits = page["vllm:prefix_cache_queries_total"], page["vllm:prefix_cache_hits_total"]
    assert 0.45 < hits / queries < 0.5
    assert page["vllm:prompt_tokens_total"] == queries
    assert page["vllm:time_to_first_token_seconds_count"] == 2
    assert page["tao_emulator_lag_share"] >= 0
    async with http.get(emulator.url + "/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}
    labels = families["vllm:cache_config_info"].samples[0].labels
    assert (labels["block_size"], labels["num_gpu_blocks"]) == ("16", "4000")
    assert families["vllm:num_requests_running"].samples[0].labels["model_name"] == 'odd"name'


async def test_reset_prefix_cache_forgets(start: Start, http: Http) -> None:
    emulator = await start()
    body = {"messages": [user("hello " * 200)], "max_tokens": 5}
    await post(http, emulator, "/v1/chat/completions", body)
    assert (await post(http, emulator, "/reset_prefix_cache", b"")) == {"success": True}
    second = await post(http, emulator, "/v1/chat/completions", body)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_tokens_are_four_bytes_each_and_round_trip(start: Start, http: Http) -> None:
    emulator = await start()
    tokens = await post(http, emulator, "/tokenize", {"model": "m", "prompt": "grün und blau"})
    assert tokens["count"] == len(tokens["tokens"]) == 4
    assert await post(http, emulator, "/detokenize", {"tokens": tokens["tokens"]}) == {
        "prompt": "grün und blau"
    }
    chat = await post(http, emulator, "/tokenize", {"messages": [user("hello")]})
    answer = await post(http, emulator, "/v1/chat/completions", {"messages": [user("hello")]})
    assert chat["count"] == answer["usage"]["prompt_tokens"]


async def test_small_endpoints(start: Start, http: Http) -> None:
    emulator = await start()
    async with http.get(emulator.url + "/v1/models") as response:
        card = (await response.json())["data"][0]
    assert (card["id"], card["max_model_len"], card["root"]) == ("m", 131_072, "Qwen/Qwen3-32B")
    for path in ("/health", "/version", "/load", "/kv_event_sources"):
        async with http.get(emulator.url + path) as response:
            assert response.status == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_client_that_leaves_frees_everything_at_once(
    start: Start, http: Http, stream: bool, phase: str
) -> None:
    emulator = await start(speed=1.0)
    model = emulator.service.model
    tokens = 400_000 if phase == "prefill" else 10
    body = {"messages": [user("x" * tokens)], "max_tokens": 4000, "ignore_eos": True, "stream": stream}

    async def ask() -> None:
        async with http.post(emulator.url + "/v1/chat/completions", json=body) as response:
            await response.read()

    task = asyncio.create_task(ask())
    await until(lambda: model.stats().running == 1)
    if phase == "decode":

        def decoding() -> bool:
            emulator.service.loop.settle()
            return model.stats().generation_tokens > 2

        await until(decoding)
    assert model.stats().used_blocks > 0
    task.cancel()
    await until(lambda: model.stats().running == 0)
    stats = model.stats()
    assert (stats.used_blocks, stats.aborted, stats.finished) == (0, 1, 0)
    page = await metrics(http, emulator)
    assert page["vllm:num_requests_running"] == 0


async def test_kill_cuts_streams_and_frees_the_port(start: Start, http: Http) -> None:
    emulator = await start(speed=1.0)
    body = {"messages": [user("hello")], "max_tokens": 4000, "ignore_eos": True, "stream": True}
    response = await http.post(emulator.url + "/v1/chat/completions", json=body)
    assert await response.content.readline()
    await emulator.kill()
    with pytest.raises(aiohttp.ClientPayloadError):
        await response.read()
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.get(emulator.url + "/health")
    again = await start(port=emulator.port)
    async with http.get(again.url + "/health") as alive:
        assert alive.status == 200


async def test_engine_restart_cuts_running_requests(start: Start, http: Http) -> None:
    emulator = await start(speed=1.0)
    body = {"messages": [user("hello")], "max_tokens": 4000, "ignore_eos": True}
    streamed = await http.post(emulator.url + "/v1/chat/completions", json={**body, "stream": True})
    whole = asyncio.create_task(http.post(emulator.url + "/v1/chat/completions", json=body))
    await until(lambda: emulator.service.model.stats().running == 2)
    emulator.service.loop.restart()
    with pytest.raises(aiohttp.ClientPayloadError):
        await streamed.read()
    with pytest.raises(aiohttp.ClientConnectionError):
        await whole
    answer = await post(http, emulator, "/v1/chat/completions", {"messages": [user("hi")], "max_tokens": 2})
    assert answer["usage"]["completion_tokens"] <= 2


async def test_a_port_in_use_is_an_error(start: Start) -> None:
    emulator = await start()
    config = EmulatorConfig(profile=load_profile("qwen3-32b-tp2-h100"), port=emulator.port)
    with pytest.raises(OSError, match="in use"):
        await start_emulator(config)
    with pytest.raises(ValueError, match="less than one block"):
        await start_emulator(replace(config, port=0, kv_tokens=3))


async def test_latency_follows_model_time(start: Start, http: Http) -> None:
    """Model seconds of a request, as the page reports them, are those of the formula."""
    emulator = await start(speed=20.0)
    body = {"messages": [user("x" * 4000)], "max_tokens": 100, "ignore_eos": True}
    answer = await post(http, emulator, "/v1/chat/completions", body)
    tokens = answer["usage"]["prompt_tokens"]
    profile = emulator.service.model.profile
    expected = profile.prefill_ms(tokens) + 99 * 13.5 + 42.2e-6 * sum(tokens + i for i in range(1, 100))
    page = await metrics(http, emulator)
    assert page["vllm:e2e_request_latency_seconds_sum"] == pytest.approx(expected / 1e3)
