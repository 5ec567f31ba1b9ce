"""Whether KV events are heard from each of an engine's endpoints while requests are served.

One message is enough and none is looked into. An engine with several data-parallel ranks has one endpoint for each, and its
own balancer chooses the rank that serves a request: all are listened to at once, while as many requests run together. It
must not know what events mean.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import zmq
import zmq.asyncio

from tao.inspection.client import EngineClient, EngineError

CONNECT_SECONDS = 0.5
HEARD_SECONDS = 3.0
SERVED_SECONDS = 30.0
"""For all requests of a round; those that take longer are given up."""
ROUNDS = 2
REQUESTS_MAX = 32
"""In one round, however many ranks there are."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Which endpoints were heard and which were silent, in the order given, while so many requests were sent."""

    endpoints: tuple[str, ...]
    silent: tuple[str, ...]
    requests: int


async def heard_events(
    endpoints: Sequence[str], client: EngineClient, request: Callable[[], dict[str, object]]
) -> Heard:
    """Subscribe to all, have requests served, and wait for any event of each, a few seconds at most.

    `request` makes one that no cache has seen: an engine tells nothing of a prompt that it holds already.
    Raises `EngineError` where an endpoint is none, or the engine does not answer.
    """
    context = zmq.asyncio.Context()
    listening: dict[str, asyncio.Task[None]] = {}
    sent = 0
    try:
        for endpoint in endpoints:
            listening[endpoint] = asyncio.create_task(_first_event(_subscribed(context, endpoint)))
        await asyncio.sleep(CONNECT_SECONDS)  # a subscription takes effect when the connection stands
        for _ in range(ROUNDS if len(listening) > 1 else 1):
            if all(task.done() for task in listening.values()):
                break
            count = min(len(listening), REQUESTS_MAX)
            sent += count
            await _serve([request() for _ in range(count)], client)
            await asyncio.wait(listening.values(), timeout=HEARD_SECONDS)
        heard = tuple(endpoint for endpoint, task in listening.items() if task.done())
        return Heard(heard, tuple(endpoint for endpoint in listening if endpoint not in heard), sent)
    finally:
        for task in listening.values():
            task.cancel()
        await asyncio.gather(*listening.values(), return_exceptions=True)
        context.destroy(0)


def _subscribed(context: zmq.asyncio.Context, endpoint: str) -> zmq.asyncio.Socket:
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise EngineError(f"{endpoint!r} is no ZMQ endpoint: {error}") from None
    return socket


async def _first_event(socket: zmq.asyncio.Socket) -> None:
    await socket.recv_multipart()


async def _serve(requests: Sequence[dict[str, object]], client: EngineClient) -> None:
    """All together, so that no balancer gives them all to one rank."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SERVED_SECONDS):
            await asyncio.gather(*(client.post("/v1/completions", request) for request in requests))
