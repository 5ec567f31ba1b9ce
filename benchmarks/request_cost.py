"""What the gateway itself spends on a request: everything but sockets, in one process, by processor time.

usage: python benchmarks/request_cost.py [--policies NAME,NAME] [--requests N] [--chunks N] [--profile]
The transport is replaced by an engine whose answer is there already, in so many chunks, and by a client that takes
everything. So this is the part of `http_path.py`'s `serve` that is not `pass`. Sessions, turns and figures are as there.
Processor time of the process; the least of several repetitions, since other work on the machine only ever adds.
"""

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import AsyncIterator

import uvloop

from tao.gateway.config import GatewayConfig
from tao.gateway.exchange import ClientRequest, RawHeaders
from tao.gateway.gateway import Gateway
from tao.gateway.logs import configure_logs
from tao.gateway.member import Sighting
from tao.policies import make_policy

TOKENS = 16
SESSIONS = 32
REPETITIONS = 7
BODY = json.dumps(
    {
        "model": "tiny",
        "stream": True,
        "messages": [{"role": "user", "content": "hello " * 200}],
        "max_tokens": TOKENS,
    }
).encode()


def answer_events() -> list[bytes]:
    """The events of one answer, as the fake engine of `_http_roles.py` writes them."""
    piece = {"id": "c-1", "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    usage = {"prompt_tokens": 210, "completion_tokens": TOKENS}
    last = {"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    return [b"data: %b\n\n" % json.dumps(event).encode() for event in (*[piece] * TOKENS, last)] + [
        b"data: [DONE]\n\n"
    ]


def in_chunks(events: list[bytes], chunks: int) -> list[bytes]:
    """The events joined into so many chunks."""
    size = -(-len(events) // chunks)
    return [b"".join(events[start : start + size]) for start in range(0, len(events), size)]


class ReadyAnswer:
    """An answer that has arrived."""

    status = 200
    complete = True
    headers: RawHeaders = ((b"content-type", b"text/event-stream"),)

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    def close(self) -> None:
        """Nothing to let go."""


class ReadyUpstream:
    """An engine that answers at once."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def send(self, base_url: str, request: ClientRequest) -> ReadyAnswer:  # noqa: ARG002
        return ReadyAnswer(self._pieces)

    def forget(self, base_url: str) -> None:
        """Nothing is kept."""


class Probe:
    """Finds every replica well."""

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting:  # noqa: ARG002
        return Sighting(True, "healthy", capacity_tokens=16_000_000)

    async def slots(self, base_url: str, seen: Sighting, timeout_seconds: float) -> int | None:  # noqa: ARG002
        """Nobody tells."""
        return None

    def forget(self, base_url: str) -> None:
        """Nothing is kept."""


class Sink:
    """A client that takes everything."""

    started = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = status == 200 and bool(headers)

    async def send(self, chunk: bytes) -> None:
        """Gone."""

    async def finish(self) -> None:
        """Done."""

    def abort(self) -> None:
        raise AssertionError("the gateway cut an answer")


async def serve(gateway: Gateway, requests: int) -> float:
    """Processor seconds a request."""
    begun = time.process_time()
    for number in range(requests):
        headers = (
            (b"host", b"127.0.0.1:8100"),
            (b"x-session-id", b"s%d" % (number % SESSIONS)),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(BODY)),
        )
        path = "/v1/chat/completions"
        request = ClientRequest("POST", path, "", path, headers, BODY)
        client = Sink()
        await gateway.handle(request, client)
        assert client.started
    return (time.process_time() - begun) / requests


async def cost(policy: str, requests: int, chunks: int, *, profile: bool) -> float:
    """The least processor seconds a request of all repetitions."""
    config = GatewayConfig(replicas=("http://127.0.0.1:1",), policy=policy, kv_events="off")
    gateway = Gateway(config, make_policy(policy), ReadyUpstream(in_chunks(answer_events(), chunks)), Probe())
    await gateway.start()
    await serve(gateway, requests)
    seconds = min([await serve(gateway, requests) for _ in range(REPETITIONS)])
    if profile:
        with cProfile.Profile() as profiler:
            await serve(gateway, requests)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)
    await gateway.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", default="round-robin,tao", help="comma-separated")
    parser.add_argument("--requests", type=int, default=1000, help="in each repetition")
    parser.add_argument("--chunks", type=int, default=1, help="in which an answer's 18 events arrive")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    configure_logs("console", "error")
    for policy in options.policies.split(","):
        seconds = uvloop.run(cost(policy, options.requests, options.chunks, profile=options.profile))
        print(f"{policy:20} {options.chunks:2} chunks: {seconds * 1e6:7.1f} us a request")


if __name__ == "__main__":
    main()
