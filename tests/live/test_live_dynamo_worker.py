"""A replica behind Dynamo's worker: the tokens that go in and come out. Dynamo's own classes are stood in for by records."""

import importlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

MODEL = {"id": "tiny", "root": "/models/tiny", "max_model_len": 4096}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 2}}
ANSWER: list[dict[str, Any]] = [
    {"choices": [{"text": "a", "token_ids": [7], "prompt_token_ids": [1, 2, 3]}]},
    {"choices": [{"text": "", "token_ids": [8], "finish_reason": "length"}]},
    {"choices": [], "usage": USAGE},
]
REQUEST = {
    "token_ids": [1, 2, 3],
    "sampling_options": {"temperature": None, "top_p": 0.5, "n": 1},
    "stop_conditions": {"max_tokens": 2, "ignore_eos": True, "stop": None},
}


@dataclass
class FakeReplica:
    url: str = ""
    answer: list[dict[str, Any]] = field(default_factory=lambda: list(ANSWER))
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [MODEL]})

    async def complete(self, request: web.Request) -> web.Response:
        self.seen.append(await request.json())
        events = "".join(f"data: {json.dumps(event)}\n\n" for event in self.answer)
        return web.Response(text=f"{events}data: [DONE]\n\n", content_type="text/event-stream")


@pytest.fixture
async def replica() -> AsyncIterator[FakeReplica]:
    fake = FakeReplica()
    app = web.Application()
    app.router.add_get("/v1/models", fake.models)
    app.router.add_post("/v1/completions", fake.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    backend: Any = ModuleType("dynamo.common.backend")
    backend.EngineConfig = backend.LlmRegistration = backend.WorkerConfig = SimpleNamespace
    backend.LLMEngine = object
    starting: Any = ModuleType("dynamo.common.backend.run")
    starting.run = None
    parents = {name: ModuleType(name) for name in ("dynamo", "dynamo.common")}
    for name, each in {**parents, backend.__name__: backend, starting.__name__: starting}.items():
        monkeypatch.setitem(sys.modules, name, each)
    monkeypatch.delitem(sys.modules, "benchmarks.live.dynamo_worker", raising=False)
    return importlib.import_module("benchmarks.live.dynamo_worker")


async def _answered(module: ModuleType, fake: FakeReplica, *, stopped: bool = False) -> list[dict[str, Any]]:
    engine, config = await module.Replica.from_args([fake.url, "32", "5120", fake.url])
    assert (config.model_name, config.served_model_name) == ("/models/tiny", "tiny")
    told = (await engine.start(1)).llm
    assert (told.context_length, told.kv_cache_block_size, told.total_kv_blocks) == (4096, 32, 160)
    try:
        context = SimpleNamespace(is_stopped=lambda: stopped)
        return [chunk async for chunk in engine.generate(REQUEST, context)]
    finally:
        await engine.cleanup()


async def test_tokens_go_in_and_come_out_with_the_engines_usage(
    module: ModuleType, replica: FakeReplica
) -> None:
    chunks = await _answered(module, replica)
    assert [chunk["token_ids"] for chunk in chunks] == [[7], [8], []]
    assert (chunks[-1]["finish_reason"], chunks[-1]["completion_usage"]) == ("length", USAGE)
    (asked,) = replica.seen
    assert asked == {
        "model": "tiny",
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "top_p": 0.5,
        "n": 1,
        "max_tokens": 2,
        "ignore_eos": True,
    }


async def test_an_error_in_the_stream_is_one_of_the_request(module: ModuleType, replica: FakeReplica) -> None:
    replica.answer = [ANSWER[0], {"error": {"message": "out of memory"}}]
    with pytest.raises(RuntimeError, match="out of memory"):
        await _answered(module, replica)


async def test_an_answer_that_nobody_waits_for_is_broken_off(
    module: ModuleType, replica: FakeReplica
) -> None:
    assert await _answered(module, replica, stopped=True) == []
