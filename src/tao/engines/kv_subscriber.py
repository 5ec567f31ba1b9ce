"""The sockets of one stream of KV events: ZeroMQ's SUB for what is published, DEALER for what has to be replayed.

It subscribes to every topic, so that events under a wrong one are noticed instead of missed. Queues and waits are
bounded: what overflows becomes a gap, which a replay closes or the follower declares. A stream that falls silent is tried
over a new connection, since the path of the old one may be dead without either end knowing. It must not know what is
followed.
"""

import asyncio
from collections.abc import Callable

import zmq
import zmq.asyncio

from tao.engines.keepalive import PROBE_AFTER_SECONDS, PROBE_PERIOD_SECONDS, PROBES
from tao.engines.kv_follow import KvFollower
from tao.engines.kv_sources import KvSource
from tao.engines.kv_wire import PAYLOAD_BYTES_MAX

QUEUED_BATCHES_MAX = 2_000
REPLAY_SECONDS_MAX = 5.0
REPLAYED_BATCHES_MAX = 20_000
LOOK_SECONDS = 1.0
"""How often it is asked whether the stream has fallen silent."""
RECONNECT_SECONDS_MIN = 30.0
"""From one new connection to the next, which an engine that has nothing to say must not see too often."""

_OPTIONS = (
    (zmq.MAXMSGSIZE, PAYLOAD_BYTES_MAX),
    (zmq.IPV6, 1),
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, PROBE_AFTER_SECONDS),
    (zmq.TCP_KEEPALIVE_INTVL, PROBE_PERIOD_SECONDS),
    (zmq.TCP_KEEPALIVE_CNT, PROBES),
)


class KvSubscriber:
    """Feeds a follower until it is cancelled. `clock`: seconds that do not go back.

    `reconnects`: how often a silence has been answered by a new connection.
    """

    def __init__(self, source: KvSource, follower: KvFollower, clock: Callable[[], float]) -> None:
        self.source = source
        self.follower = follower
        self.reconnects = 0
        self._clock = clock
        self._tried_after = -1  # how many batches had come when a silence had its new connection
        self._reconnect_from = float("-inf")

    async def run(self, context: zmq.asyncio.Context) -> None:
        """Receive for ever. Raises `zmq.ZMQError` where the endpoint cannot be used at all."""
        while True:
            await self._run_once(context)

    async def _run_once(self, context: zmq.asyncio.Context) -> None:
        """Receive over one connection, until another one is to be tried."""
        socket = _socket(context, zmq.SUB)
        receiving = None
        try:
            socket.setsockopt(zmq.RCVHWM, QUEUED_BATCHES_MAX)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
            socket.subscribe(b"")
            socket.connect(self.source.endpoint)
            receiving = asyncio.get_running_loop().create_task(self._receive(context, socket))
            while not self._has_to_reconnect():
                if (await asyncio.wait({receiving}, timeout=LOOK_SECONDS))[0]:
                    return await receiving  # it has raised
        finally:
            if receiving is not None:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
            socket.close(linger=0)

    def _has_to_reconnect(self) -> bool:
        """Whether to connect anew now; said, and counted, once for each silence."""
        batches, now = self.follower.figures.batches, self._clock()
        if not self.follower.silent or self._tried_after == batches or now < self._reconnect_from:
            return False
        if self.follower.catching_up:  # it speaks, and what is kept until the replay has ended would be lost
            return False
        self._tried_after, self._reconnect_from = batches, now + RECONNECT_SECONDS_MIN
        self.reconnects += 1
        return True

    async def _receive(self, context: zmq.asyncio.Context, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            start = self.follower.receive(frames, self._clock())
            if start is not None:
                await self._replay(context, start)
            await asyncio.sleep(0)  # a stream that never pauses must not hold up the requests

    async def _replay(self, context: zmq.asyncio.Context, start: int) -> None:
        if self.source.replay_endpoint is None:
            self.follower.replay_failed("the engine has no replay endpoint")
            return
        socket = _socket(context, zmq.DEALER)
        try:
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


def _socket(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    """A socket that is not connected yet, with what every connection to an engine needs."""
    socket = context.socket(kind)
    for option, value in _OPTIONS:
        socket.setsockopt(option, value)
    return socket
