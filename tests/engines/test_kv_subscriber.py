"""The subscriber on real sockets: what is published arrives, gaps are replayed, an unusable endpoint is an error."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import zmq
import zmq.asyncio
from gateway_kit import until
from kv_kit import Publisher, stored

from tao.engines.kv_follow import KvFollower
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
