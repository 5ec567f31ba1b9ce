"""Whether KV events are heard from an endpoint while a request is served.

One message is enough and none is looked into. It must not know what events mean.
"""

import asyncio
from contextlib import suppress

import zmq
import zmq.asyncio

from tao.inspection.client import EngineClient, EngineError

CONNECT_SECONDS = 0.5
HEARD_SECONDS = 3.0


async def heard_events(endpoint: str, client: EngineClient, request: dict[str, object]) -> bool:
    """Subscribe, have `request` served, and wait for any event, a few seconds at most.

    Raises `EngineError` where the endpoint is none.
    """
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    try:
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise EngineError(f"{endpoint!r} is no ZMQ endpoint: {error}") from None
        async with asyncio.timeout(CONNECT_SECONDS + 2 * HEARD_SECONDS):
            await asyncio.sleep(CONNECT_SECONDS)  # a subscription takes effect when the connection stands
            await client.post("/v1/completions", request)
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARD_SECONDS):
                    await socket.recv_multipart()
                    return True
    except TimeoutError:
        return False
    finally:
        socket.close(0)
        context.destroy(0)
    return False
