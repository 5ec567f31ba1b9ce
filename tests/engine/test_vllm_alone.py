"""What TAO relies on in a real vLLM, seen directly: tells a failure of the engine from one of the gateway."""

import json
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.vllm_replica import VllmReplica

# The engine takes half a minute and more to start, inside the first test's time.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ANSWER_TOKENS = 8


def chat_body(replica: VllmReplica, text: str, **more: object) -> dict[str, object]:
    return {
        "model": replica.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": ANSWER_TOKENS,
        "ignore_eos": True,
        **more,
    }


def chat(engine: httpx.Client, body: dict[str, object]) -> dict[str, Any]:
    response = engine.post("/v1/chat/completions", json=body)
    assert response.status_code == httpx.codes.OK, response.text
    answer = response.json()
    assert isinstance(answer, dict)
    return answer


def metric_samples(engine: httpx.Client, name: str) -> list[tuple[dict[str, str], float]]:
    page = engine.get("/metrics").text
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def test_chat_completion_reports_usage(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    answer = chat(engine, chat_body(vllm_replica, "hello"))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == ANSWER_TOKENS
    assert answer["usage"]["prompt_tokens"] > 0


def test_stream_ends_with_usage_and_done(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    body = chat_body(vllm_replica, "hello", stream=True, stream_options={"include_usage": True})
    with engine.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert data[-1] == "[DONE]"
    last = json.loads(data[-2])
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == ANSWER_TOKENS


def test_a_repeated_prompt_is_cached_up_to_its_last_block(
    engine: httpx.Client, vllm_replica: VllmReplica
) -> None:
    body = chat_body(vllm_replica, "the quick brown fox " * 60)
    first, second = chat(engine, body)["usage"], chat(engine, body)["usage"]
    assert not (first["prompt_tokens_details"] or {}).get("cached_tokens")
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert second["prompt_tokens"] - 2 * 32 <= cached < second["prompt_tokens"]


def test_a_growing_conversation_reuses_its_prefix(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    messages = [{"role": "user", "content": "list the files of this folder, one a line " * 20}]
    first = chat(engine, chat_body(vllm_replica, "", messages=messages))
    messages += [
        {"role": "assistant", "content": first["choices"][0]["message"]["content"] or ""},
        {"role": "user", "content": "and now count them"},
    ]
    second = chat(engine, chat_body(vllm_replica, "", messages=messages))
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] - 2 * 32 <= cached <= first["usage"]["total_tokens"]


def test_a_flush_empties_the_prefix_cache(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    body = chat_body(vllm_replica, "once upon a time " * 40)
    chat(engine, body)
    engine.post("/reset_prefix_cache").raise_for_status()
    details = chat(engine, body)["usage"]["prompt_tokens_details"] or {}
    assert not details.get("cached_tokens")


def test_metrics_tell_the_capacity(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    ((labels, value),) = metric_samples(engine, "vllm:cache_config_info")
    assert value == 1.0
    assert int(labels["num_gpu_blocks"]) * int(labels["block_size"]) == vllm_replica.capacity_tokens


def test_metrics_count_cache_hits(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    body = chat_body(vllm_replica, "a prompt of more than one block " * 30)
    chat(engine, body)
    ((_, before),) = metric_samples(engine, "vllm:prefix_cache_hits_total")
    usage = chat(engine, body)["usage"]
    ((_, after),) = metric_samples(engine, "vllm:prefix_cache_hits_total")
    assert after - before == usage["prompt_tokens_details"]["cached_tokens"] > 0


def test_an_unknown_model_is_refused(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    response = engine.post("/v1/chat/completions", json=chat_body(vllm_replica, "hello", model="absent"))
    assert response.status_code == httpx.codes.NOT_FOUND


def test_a_prompt_beyond_the_window_is_refused(engine: httpx.Client, vllm_replica: VllmReplica) -> None:
    response = engine.post("/v1/chat/completions", json=chat_body(vllm_replica, "word " * 20_000))
    assert response.status_code == httpx.codes.BAD_REQUEST
