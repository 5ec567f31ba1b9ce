"""The replicas as the gateway knows them: names, addresses, and what it last heard of each.

`Fleet` is a directory and a pulse: it looks at each replica every period and tells the core what changed: up, down, another
capacity, restarted with an empty cache. Failures of real requests (`suspect`) bring the next look forward. It decides
nothing, and it does not know how an engine is asked (`Probe`).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from tao.core.events import CapacityChanged, ReplicaJoined, ReplicaLost
from tao.core.ids import ReplicaId
from tao.gateway.config import GatewayConfig, replica_name
from tao.gateway.driver import Driver

UNKNOWN_CAPACITY_TOKENS = 1 << 40
"""Stands for a capacity nobody told: such a replica is never full for TAO, and `/state` says so."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one look at a replica showed. `generation` grows while the engine lives; a smaller one means a restart.

    `refused`: nothing listens there, so there is no point in asking twice. `problems`: what the engine does not tell.
    """

    healthy: bool
    detail: str = ""
    refused: bool = False
    capacity_tokens: int | None = None
    generation: float | None = None
    engine: str = ""
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    problems: tuple[str, ...] = ()


class Probe(Protocol):
    """Looks at a replica; never raises but for cancellation."""

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting: ...


@dataclass(slots=True)
class Member:
    """One replica of the fleet."""

    id: ReplicaId
    url: str
    up: bool = False
    failures: int = 0
    capacity_tokens: int | None = None  # the last that the engine told
    generation: float | None = None  # likewise
    sighting: Sighting = field(default_factory=lambda: Sighting(False, "not looked at yet"))
    nudge: asyncio.Event = field(default_factory=asyncio.Event)


class Fleet:
    """All replicas of the gateway, in the order in which they were named."""

    def __init__(self, config: GatewayConfig, driver: Driver, probe: Probe) -> None:
        self._config = config
        self._driver = driver
        self._probe = probe
        self._log = structlog.get_logger("tao.fleet")
        self._members = {
            member.id: member
            for member in (Member(ReplicaId(replica_name(url)), url.rstrip("/")) for url in config.replicas)
        }

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def url(self, replica: ReplicaId) -> str:
        """The base URL of a replica."""
        return self._members[replica].url

    def up(self) -> list[Member]:
        """The replicas that answered when last looked at."""
        return [member for member in self if member.up]

    def suspect(self, replica: ReplicaId) -> None:
        """A request to this replica failed: look at it now."""
        self._members[replica].nudge.set()

    async def watch(self) -> None:
        """Look at every replica every period, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for member in self:
                group.create_task(self._watch(member))

    async def look_once(self) -> None:
        """One look at every replica, all at the same time."""
        await asyncio.gather(*(self._look(member) for member in self))

    def describe(self) -> list[dict[str, object]]:
        """What was last seen of each replica, as JSON-ready data."""
        return [_describe(member) for member in self]

    async def _watch(self, member: Member) -> None:
        while True:
            try:
                await self._look(member)
            except Exception:  # one that cannot be read must not end the pulse of the others
                self._log.exception("looking at a replica failed", replica=member.id)
            try:
                async with asyncio.timeout(self._config.health.period_seconds):
                    await member.nudge.wait()
            except TimeoutError:
                continue
            member.nudge.clear()

    async def _look(self, member: Member) -> None:
        before = member.sighting
        seen = await self._probe.look(member.url, self._config.health.timeout_seconds)
        member.sighting = seen
        if not seen.healthy:
            self._missed(member, seen)
            return
        member.failures = 0
        if seen.problems != before.problems or not member.up:
            for problem in seen.problems:
                self._log.warning("replica does not tell", replica=member.id, problem=problem)
        restarted = _restarted(member, seen)
        member.generation = seen.generation if seen.generation is not None else member.generation
        if member.up and restarted:
            self._log.warning("replica restarted: its cache is empty", replica=member.id)
            self._lose(member)
        capacity_tokens = self._capacity(member, seen)
        if not member.up:
            member.up = True
            self._log.info(
                "replica is up", replica=member.id, engine=seen.engine, capacity_tokens=seen.capacity_tokens
            )
            self._driver.feed(ReplicaJoined(self._driver.clock.now(), member.id, capacity_tokens))
        elif capacity_tokens != self._driver.scheduler.view.replicas[member.id].capacity_tokens:
            self._log.info("capacity changed", replica=member.id, capacity_tokens=capacity_tokens)
            self._driver.feed(CapacityChanged(self._driver.clock.now(), member.id, capacity_tokens))

    def _missed(self, member: Member, seen: Sighting) -> None:
        member.failures += 1
        if member.up and (seen.refused or member.failures >= self._config.health.failures_max):
            self._log.warning("replica is down", replica=member.id, detail=seen.detail)
            self._lose(member)
        elif not member.up and member.failures == 1:
            self._log.warning(
                "replica cannot be reached", replica=member.id, url=member.url, detail=seen.detail
            )

    def _lose(self, member: Member) -> None:
        member.up = False
        self._driver.feed(ReplicaLost(self._driver.clock.now(), member.id))

    def _capacity(self, member: Member, seen: Sighting) -> int:
        """What the engine told last: one incomplete page does not make a replica boundless."""
        if seen.capacity_tokens is not None:
            member.capacity_tokens = seen.capacity_tokens
        return member.capacity_tokens or self._config.capacity_tokens or UNKNOWN_CAPACITY_TOKENS


def _restarted(member: Member, now: Sighting) -> bool:
    before = member.generation
    return before is not None and now.generation is not None and now.generation < before


def _describe(member: Member) -> dict[str, object]:
    seen = member.sighting
    return {
        "id": member.id,
        "url": member.url,
        "up": member.up,
        "detail": seen.detail,
        "engine": seen.engine,
        "capacity_tokens": seen.capacity_tokens,
        "running": seen.running,
        "waiting": seen.waiting,
        "kv_usage": seen.kv_usage,
        "problems": list(seen.problems),
    }
