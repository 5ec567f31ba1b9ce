"""Two real vLLM replicas of the toy model `small` on the CPU: started together, looked at, flushed between runs.

`small` computes about 600 prompt tokens a second, so that a prefix found in the cache shows in time. It knows engines and
nothing of what stands before them.
"""

import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tao.engines.vllm import VllmAdapter
from tao.replay.text import TextPool
from tests.engine.processes import ServiceError
from tests.engine.vllm_replica import ReplicaOptions, VllmReplica, start_replica

BLOCK_TOKENS = 32
IDLE_SECONDS_MAX = 120.0
POLL_SECONDS = 0.2
ANSWER_SECONDS_MAX = 120.0
CALIBRATION_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class Counters:
    """What the engines counted since they started, summed over them."""

    query_tokens: int
    hit_tokens: int
    preemptions: int

    def since(self, before: "Counters") -> "Counters":
        """The difference."""
        return Counters(
            self.query_tokens - before.query_tokens,
            self.hit_tokens - before.hit_tokens,
            self.preemptions - before.preemptions,
        )

    @property
    def hit_rate(self) -> float:
        """Cached tokens over tokens looked up; 0 where none were."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0


@contextmanager
def replicas(scratch: Path, *, kv_tokens: int, window_tokens: int) -> Iterator[list[VllmReplica]]:
    """Two replicas with `kv_tokens` of KV cache each. Raises ServiceError with the engine's own words."""
    options = ReplicaOptions(
        shape="small",
        blocks=kv_tokens // BLOCK_TOKENS,
        block_size_tokens=BLOCK_TOKENS,
        context_tokens_max=window_tokens,
    )
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        starting = [start_replica(scratch / name, options) for name in ("replica-1", "replica-2")]
        entered = [pool.submit(stack.enter_context, one) for one in starting]
        yield [one.result() for one in entered]


def post(url: str, body: object = None) -> bytes:
    """The answer to a POST of JSON."""
    request = urllib.request.Request(
        url, msgspec.json.encode(body), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
        return bytes(answer.read())


def get(url: str) -> bytes:
    """The answer to a GET."""
    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
        return bytes(answer.read())


def flush(engines: Sequence[VllmReplica]) -> None:
    """Empty the prefix caches once nothing runs. Raises ServiceError if an engine does not become idle."""
    adapter, deadline = VllmAdapter(), time.monotonic() + IDLE_SECONDS_MAX
    for engine in engines:
        while True:
            status = adapter.read(get(f"{engine.url}/metrics"))
            if not status.running and not status.waiting:
                break
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{engine.url} still runs {status.running} requests; the run before left them"
                )
            threading.Event().wait(POLL_SECONDS)
        post(f"{engine.url}/reset_prefix_cache")


def counters(engines: Sequence[VllmReplica]) -> Counters:
    """The counters of all engines."""
    seen = [VllmAdapter().read(get(f"{engine.url}/metrics")) for engine in engines]
    return Counters(
        query_tokens=int(sum(status.prefix_query_tokens or 0 for status in seen)),
        hit_tokens=int(sum(status.prefix_hit_tokens or 0 for status in seen)),
        preemptions=int(sum(status.preemptions or 0 for status in seen)),
    )


def warm_up(engines: Sequence[VllmReplica]) -> float:
    """A first request to each, which is slower than any later one; characters per token of the client's filler text."""
    text = TextPool(0).named("calibration", CALIBRATION_CHARS)
    ratio = 4.0
    for engine in engines:
        counted = msgspec.json.decode(
            post(
                f"{engine.url}/tokenize", {"model": engine.model, "prompt": text, "add_special_tokens": False}
            )
        )
        ratio = CALIBRATION_CHARS / counted["count"]
        body = {"model": engine.model, "prompt": text[:2_000], "max_tokens": 16, "ignore_eos": True}
        post(f"{engine.url}/v1/completions", body)
    return ratio
