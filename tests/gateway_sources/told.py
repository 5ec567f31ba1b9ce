"""Following a source of replicas in a test: `following` collects every set that it tells, in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tao.gateway.sources import ReplicaSource, Wanted


@asynccontextmanager
async def following(source: ReplicaSource) -> AsyncIterator[list[tuple[Wanted, ...]]]:
    sets: list[tuple[Wanted, ...]] = []

    async def follow() -> None:
        async for wanted in source.desired():
            sets.append(wanted)  # noqa: PERF401 - each set shows as soon as it is told

    task = asyncio.get_running_loop().create_task(follow())
    try:
        yield sets
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def urls(*sets: tuple[Wanted, ...]) -> list[list[str]]:
    """The same, readable: URLs, with a mark on those that drain."""
    return [[wanted.url + ("!" if wanted.draining else "") for wanted in each] for each in sets]
