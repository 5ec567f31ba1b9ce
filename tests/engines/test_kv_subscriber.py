"""The subscriber on real sockets: what is published arrives, gaps are replayed, dead paths are found, and an endpoint that
cannot be used is an error.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import zmq
import zmq.asyncio
from gateway_kit import until
from kv_kit import Path, Publisher, stored

from tao.engines import kv_subscriber
from tao.engines.kv_follow import SILENCE_SECONDS, KvFollower
from tao.engines.kv_sources import KvSource
from tao.engines.kv_subscriber import KvSubscriber

Subscribe = Callable[[KvSource], KvFollower]


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
async def publisher(context: zmq.asyncio.Context) -> AsyncIterator[Publisher]:
    publisher = Publisher(context, b"kv")
    yield publisher
    await publisher.close()


@pytest.fixture
async def subscribe(context: zmq.asyncio.Context) -> AsyncIterator[Subscribe]:
    tasks: list[asyncio.Task[None]] = []

    def start(source: KvSource) -> KvFollower:
        follower = KvFollower(source.topic)
        clock = asyncio.get_running_loop().time
        tasks.append(asyncio.ensure_future(KvSubscriber(source, follower, clock).run(context)))
        return follower

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def heard(publisher: Publisher, follower: KvFollower) -> None:
    """Publish until the subscription, which takes a moment, has arrived."""

    async def published() -> bool:
        await publisher.publish()
        return follower.figures.batches > 0

    await until(published)


async def test_what_is_published_arrives(publisher: Publisher, subscribe: Subscribe) -> None:
    follower = subscribe(publisher.source)
    await publisher.publish(stored([1, 2]), lost=True)  # before anybody listened
    await heard(publisher, follower)
    await publisher.publish(stored([3], 2))
    await until(lambda: follower.index.tokens("s") == 48)
    assert publisher.replays == [0]


async def test_a_gap_is_replayed(publisher: Publisher, subscribe: Subscribe) -> None:
    follower = subscribe(publisher.source)
    await heard(publisher, follower)
    await publisher.publish(stored([1, 2]), lost=True)
    await publisher.publish(stored([3], 2), lost=True)
    await publisher.publish(stored([4], 3))
    await until(lambda: follower.index.tokens("s") == 64)
    assert (follower.figures.gaps, follower.figures.losses) == (1, 0)


async def test_without_a_replay_endpoint_a_gap_is_a_loss(publisher: Publisher, subscribe: Subscribe) -> None:
    follower = subscribe(KvSource(publisher.source.endpoint, None, "kv"))
    await heard(publisher, follower)
    await publisher.publish(stored([1, 2]), lost=True)
    await publisher.publish(stored([3], 2))
    await until(lambda: follower.figures.losses)
    assert follower.last_loss is not None
    assert "no replay endpoint" in follower.last_loss


async def test_events_under_another_topic_are_noticed(publisher: Publisher, subscribe: Subscribe) -> None:
    follower = subscribe(publisher.source)

    async def noticed() -> bool:
        await publisher.publish(stored([1]), topic=b"other")
        return follower.figures.other_topics > 0

    await until(noticed)
    assert follower.problem is not None


async def test_an_endpoint_that_cannot_be_used_is_an_error(context: zmq.asyncio.Context) -> None:
    with pytest.raises(zmq.ZMQError):
        await KvSubscriber(KvSource("tcp://nonsense"), KvFollower(), lambda: 0.0).run(context)


# --- paths that die without a word ------------------------------------------------------------------------------------

KEEPALIVE = (zmq.TCP_KEEPALIVE, zmq.TCP_KEEPALIVE_IDLE, zmq.TCP_KEEPALIVE_INTVL, zmq.TCP_KEEPALIVE_CNT)


class Noted(zmq.asyncio.Socket):
    """Notes what keeps each connection alive."""

    def connect(self, addr: str) -> Any:
        NOTED[addr] = [self.getsockopt(option) for option in KEEPALIVE]
        return super().connect(addr)


NOTED: dict[str, object] = {}


class NotingContext(zmq.asyncio.Context):
    _socket_class = Noted


@pytest.fixture
async def path(publisher: Publisher) -> AsyncIterator[Path]:
    async with Path(publisher.source.endpoint) as path:
        yield path


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_subscriber, "LOOK_SECONDS", 0.02)


def fall_silent(follower: KvFollower) -> None:
    """A turn has ended that must have stored blocks, and nothing was heard of it for too long."""
    now = asyncio.get_running_loop().time()
    follower.expect(now, now)
    follower.listen(now + SILENCE_SECONDS + 1.0)
    assert follower.silent


async def speaks(publisher: Publisher, follower: KvFollower) -> None:
    """Publish until it is heard, and all of it."""

    async def heard() -> bool:
        await publisher.publish()
        return follower.live

    await until(heard)
    await until(lambda: follower._next == publisher.published)


async def test_connections_are_probed_so_that_a_dead_one_is_found_within_half_a_minute() -> None:
    NOTED.clear()
    context = NotingContext()
    publisher = Publisher(context, b"kv")
    follower = KvFollower("kv")
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(KvSubscriber(publisher.source, follower, clock).run(context))
    await publisher.publish(lost=True)
    await heard(publisher, follower)
    await until(lambda: publisher.replays)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await publisher.close()
    context.destroy(linger=0)
    endpoints = (publisher.source.endpoint, publisher.source.replay_endpoint)
    assert {endpoint: [1, 10, 5, 4] for endpoint in endpoints} == NOTED


async def test_a_silent_stream_is_heard_again_over_a_new_connection(
    publisher: Publisher, path: Path, subscribe: Subscribe, soon: None
) -> None:
    follower = subscribe(KvSource(path.endpoint, publisher.source.replay_endpoint, "kv"))
    await heard(publisher, follower)
    await publisher.publish(stored([1, 2]))
    await until(lambda: follower.index.tokens("s") == 32)
    path.die()
    await publisher.publish(stored([7], None, "t"))
    await asyncio.sleep(0.1)
    assert path.connections == 1, "it cannot know yet"
    fall_silent(follower)
    await until(lambda: path.connections == 2)
    await speaks(publisher, follower)
    assert follower.index.tokens("t") == 16, "what was missed was replayed"
    assert (follower.figures.gaps, follower.figures.losses) == (1, 1)


async def test_an_engine_that_has_nothing_to_say_is_connected_to_anew_once(
    publisher: Publisher, path: Path, subscribe: Subscribe, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = subscribe(KvSource(path.endpoint, publisher.source.replay_endpoint, "kv"))
    await speaks(publisher, follower)
    monkeypatch.setattr(kv_subscriber, "RECONNECT_SECONDS_MIN", 1.0)
    fall_silent(follower)
    await until(lambda: path.connections == 2)
    await asyncio.sleep(1.2)
    assert path.connections == 2, "once for a silence"
    await speaks(publisher, follower)
    fall_silent(follower)
    await until(lambda: path.connections == 3)
    since = asyncio.get_running_loop().time()  # it was connected to a moment ago
    await speaks(publisher, follower)
    fall_silent(follower)
    await until(lambda: path.connections == 4)
    assert asyncio.get_running_loop().time() - since > 0.8, "and not at once for the next"
