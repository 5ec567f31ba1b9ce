"""A plain vLLM replica as a worker of NVIDIA Dynamo: tokens in, tokens out, over the replica's own HTTP interface.

usage: PYTHON -m benchmarks.live.dynamo_worker REPLICA_URL BLOCK_TOKENS CAPACITY_TOKENS MODEL_URL
MODEL_URL is that of the replica whose files of the model are named to the frontend, the same for all workers.
PYTHON is one that has `ai-dynamo`. Dynamo's frontend tokenises, chooses a worker and writes the answer's text; this
passes the tokens on to `/v1/completions` and those of the answer back. It decides nothing and knows no sessions.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from dynamo.common.backend import (  # type: ignore[import-not-found]  # of the peer's own environment
    EngineConfig,
    LLMEngine,
    LlmRegistration,
    WorkerConfig,
)
from dynamo.common.backend.run import run  # type: ignore[import-not-found]

ANSWER_SECONDS_MAX = 600.0
LINE_BYTES_MAX = 1 << 22
"""The first event of an answer repeats the prompt's tokens."""
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "n")
STOPPING = ("max_tokens", "min_tokens", "ignore_eos")


class Replica(LLMEngine):  # type: ignore[misc]
    """One replica that is up; it is neither started nor ended here."""

    def __init__(self, url: str, block_tokens: int, capacity_tokens: int) -> None:
        self._url = url
        self._block_tokens = block_tokens
        self._capacity_tokens = capacity_tokens
        self._http: aiohttp.ClientSession | None = None
        self._model: dict[str, Any] = {}

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple["Replica", WorkerConfig]:
        """The worker of the command line; the replica of MODEL_URL says which model there is and where that lies."""
        url, block_tokens, capacity_tokens, model_url = sys.argv[1:5] if argv is None else argv
        replica = cls(url, int(block_tokens), int(capacity_tokens))
        async with aiohttp.ClientSession() as http, http.get(f"{model_url}/v1/models") as answer:
            replica._model = (await answer.json())["data"][0]
        config = WorkerConfig(
            namespace="dynamo",
            model_name=replica._model["root"],
            served_model_name=replica._model["id"],
            discovery_backend="file",
            request_plane="tcp",
            event_plane="zmq",
            enable_kv_routing=False,  # its publisher would listen beyond loopback; the router counts by itself
        )
        return replica, config

    async def start(self, worker_id: int) -> EngineConfig:
        """Tell the model and the cache's size; `worker_id` is of no use to an engine that runs already."""
        del worker_id
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, read_bufsize=LINE_BYTES_MAX
        )
        return EngineConfig(
            model=self._model["root"],
            served_model_name=self._model["id"],
            llm=LlmRegistration(
                context_length=self._model["max_model_len"],
                kv_cache_block_size=self._block_tokens,
                total_kv_blocks=self._capacity_tokens // self._block_tokens,
            ),
        )

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """Stream the tokens of one answer. The last chunk has the usage, cached tokens included."""
        assert self._http is not None
        finish_reason: str | None = None
        async with self._http.post(f"{self._url}/v1/completions", json=self._body(request)) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if context.is_stopped():
                    return
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[len(b"data: ") :])
                if "error" in event:
                    raise RuntimeError(f"{self._url}: {event['error']}")
                for choice in event["choices"]:
                    finish_reason = choice.get("finish_reason") or finish_reason
                    yield {"index": 0, "token_ids": choice.get("token_ids") or []}
                if event.get("usage"):
                    yield {
                        "index": 0,
                        "token_ids": [],
                        "finish_reason": finish_reason or "error",
                        "completion_usage": event["usage"],
                    }

    def _body(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = {
            **{name: (request.get("sampling_options") or {}).get(name) for name in SAMPLING},
            **{name: (request.get("stop_conditions") or {}).get(name) for name in STOPPING},
        }
        return {
            "model": self._model["id"],
            "prompt": list(request["token_ids"]),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            **{name: value for name, value in wanted.items() if value is not None},
        }

    async def cleanup(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()


if __name__ == "__main__":
    run(Replica)
