"""A gateway that watches the cache of a replica, and what it believes of a session there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zmq.asyncio
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import MODEL, Front, fronted, until
from kv_kit import Publisher, stored

from tao.core.ids import SessionId
from tao.engines import KvFollower


def evidence(front: Front, session: str) -> tuple[int, str]:
    """Tokens and source of the only evidence of a session; (0, "") where there is none."""
    known = front.session(session)
    if known is None or not known.evidence:
        return 0, ""
    (seen,) = known.evidence.values()
    return seen.tokens, seen.source.value


def given(front: Front, session: str) -> str:
    """What engines call a session that the client calls so."""
    assert front.gateway._watch is not None
    return front.gateway._watch.names.given(SessionId(f"public/{session}"))


def follower_of(front: Front) -> KvFollower:
    """Of the only stream of the only replica."""
    assert front.gateway._watch is not None
    (watched,) = front.gateway._watch._watched.values()
    return watched.streams[0].follower


def described(front: Front) -> list[dict[str, Any]]:
    """What is known of each replica's stream; none before it has joined."""
    assert front.gateway._watch is not None
    return front.gateway._watch.describe()


def live(front: Front, url: str) -> bool:
    replica = url.removeprefix("http://")
    return any(row["live"] for row in described(front) if row["replica"] == replica)


@asynccontextmanager
async def published(
    topic: bytes = b"kv",
    beside: tuple[str, ...] = (),
    first: dict[str, Any] | None = None,
    models: tuple[str, ...] = (MODEL,),
    **settings: Any,
) -> AsyncIterator[tuple[Front, FakeEngine, Publisher]]:
    """A gateway before a fake engine whose events are published by hand; the subscription has arrived.

    `beside`: more replicas, behind it. `first`: an event of a minute before. `models`: what the engine serves.
    """
    context = zmq.asyncio.Context()
    publisher = Publisher(context, topic)
    if first is not None:
        await publisher.publish(first, at=-60.0)
    source = {"endpoint": publisher.source.endpoint, "replay_endpoint": publisher.source.replay_endpoint}
    try:
        async with (
            fake_engine(
                default=says("ok", counts=usage(1_000, 10, 0)),
                kv_sources=[{**source, "topic": "kv"}],
                models=models,
            ) as engine,
            fronted(engine.url, *beside, **settings) as front,
        ):
            await until(lambda: any(row["streams"] for row in described(front)))
            yield front, engine, publisher
    finally:
        await publisher.close()
        context.destroy(linger=0)


async def heard(front: Front, engine: FakeEngine, publisher: Publisher) -> None:
    async def spoken() -> bool:
        await publisher.publish()
        return live(front, engine.url)

    await until(spoken)


async def session_told(front: Front, engine: FakeEngine, publisher: Publisher) -> None:
    """The stream is heard, and session "s" has had a turn whose blocks it told: 39 of 16 tokens, numbered from 1."""
    await heard(front, engine, publisher)
    await front.chat("hello", "s")
    await publisher.publish(stored(list(range(1, 40)), None, given(front, "s")))
    await until(lambda: evidence(front, "s") == (624, "kv-events"))
