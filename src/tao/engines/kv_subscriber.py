"""The sockets of one stream of KV events: ZeroMQ's SUB for what is published, DEALER for what has to be replayed.

It subscribes to every topic, so that events under a wrong one are noticed instead of missed. Queues and waits are
bounded: what overflows becomes a gap, which a replay closes or the follower declares. It must not know what is followed.
"""

import asyncio
from collections.abc import Callable

import zmq
import zmq.asyncio

from tao.engines.kv_follow import KvFollower
from tao.engines.kv_sources import KvSource
from tao.engines.kv_wire import PAYLOAD_BYTES_MAX

QUEUED_BATCHES_MAX = 2_000
REPLAY_SECONDS_MAX = 5.0
REPLAYED_BATCHES_MAX = 20_000


class KvSubscriber:
    """Feeds a follower until it is cancelled. `clock`: seconds that do not go back."""

    def __init__(self, source: KvSource, follower: KvFollower, clock: Callable[[], float]) -> None:
        self.source = source
        self.follower = follower
        self._clock = clock

    async def run(self, context: zmq.asyncio.Context) -> None:
        """Receive for ever. Raises `zmq.ZMQError` where the endpoint cannot be used at all."""
        socket = context.socket(zmq.SUB)
        try:
            socket.setsockopt(zmq.RCVHWM, QUEUED_BATCHES_MAX)
            socket.setsockopt(zmq.MAXMSGSIZE, PAYLOAD_BYTES_MAX)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
            socket.setsockopt(zmq.IPV6, 1)
            socket.subscribe(b"")
            socket.connect(self.source.endpoint)
            while True:
                frames = await socket.recv_multipart()
                start = self.follower.receive(frames, self._clock())
                if start is not None:
                    await self._replay(context, start)
                await asyncio.sleep(0)  # a stream that never pauses must not hold up the requests
        finally:
            socket.close(linger=0)

    async def _replay(self, context: zmq.asyncio.Context, start: int) -> None:
        if self.source.replay_endpoint is None:
            self.follower.replay_failed("the engine has no replay endpoint")
            return
        socket = context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.MAXMSGSIZE, PAYLOAD_BYTES_MAX)
            socket.setsockopt(zmq.IPV6, 1)
            socket.connect(self.source.replay_endpoint)
            async with asyncio.timeout(REPLAY_SECONDS_MAX):
                await socket.send_multipart((b"", start.to_bytes(8, "big")))
                for _ in range(REPLAYED_BATCHES_MAX):
                    frames = await socket.recv_multipart()
                    if self.follower.replayed(
                        frames[1:], self._clock()
                    ):  # the first one is empty, as REQ sockets want it
                        return
                    await asyncio.sleep(0)
            self.follower.replay_failed(f"the replay had no end after {REPLAYED_BATCHES_MAX} batches")
        except TimeoutError:
            self.follower.replay_failed(f"the replay did not end within {REPLAY_SECONDS_MAX:g} s")
        except zmq.ZMQError as error:
            self.follower.replay_failed(f"replay endpoint {self.source.replay_endpoint}: {error}")
        finally:
            socket.close(linger=0)
