"""The replicas as the gateway knows them: names, addresses, and what it last heard of each.

`Fleet` is a directory and a pulse: it looks at each replica every period and tells the core what changed: up, down, another
capacity, other models, restarted with an empty cache. Failures of real requests (`suspect`) bring the next look forward.
Replicas join, drain and leave while it runs; who may is decided elsewhere (`roster`). It decides nothing, and it does not
know how an engine is asked (`Probe`).
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

import structlog

from tao.core.events import (
    CapacityChanged,
    ModelsChanged,
    ReplicaDraining,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
)
from tao.core.ids import ReplicaId
from tao.gateway.config import GatewayConfig
from tao.gateway.driver import Driver
from tao.gateway.member import Member, Sighting, new_problems
from tao.gateway.reconciling import Reconciliation
from tao.gateway.slots import SlotsOf
from tao.gateway.sources import check_address, replica_name, same_address

UNKNOWN_CAPACITY_TOKENS = 1 << 40
"""Stands for a capacity nobody told: such a replica is never full for TAO, and `/state` says so."""
NAME_SHOWN_MAX = 200
"""Characters of a client's own word that a message repeats."""


class UnknownModelError(LookupError):
    """No replica serves what was asked for; the message names the models there are and goes to the client (404)."""


class UnknownReplicaError(LookupError):
    """No replica has this id or URL; the message goes to the client (404)."""


class Probe(Protocol):
    """Looks at a replica; never raises but for cancellation."""

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting: ...

    async def slots(self, base_url: str, seen: Sighting, timeout_seconds: float) -> int | None:
        """How many requests run there at once, where the engine that was `seen` tells."""

    def forget(self, base_url: str) -> None:
        """Nobody looks there any more: keep nothing of it."""


class Fleet:
    """All replicas of the gateway, in the order in which they were named. `forgets`: told each URL that is used no more."""

    def __init__(
        self, config: GatewayConfig, driver: Driver, probe: Probe, *forgets: Callable[[str], None]
    ) -> None:
        self._config = config
        self._driver = driver
        self._probe, self._forgets = probe, (probe.forget, *forgets)
        self._slots = SlotsOf(config.replica_slots, config.slots)
        self.reconciliation = Reconciliation(driver.scheduler.view, time.monotonic)
        self._log = structlog.get_logger("tao.fleet")
        self._members: dict[ReplicaId, Member] = {}
        self._gone: dict[ReplicaId, str] = {}
        self._pulses: asyncio.TaskGroup | None = None
        self._told: list[tuple[str, ...] | None] = []
        self._served: tuple[str, ...] = ()
        for url in config.replicas:
            self.add(url)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def find(self, named: str) -> Member:
        """By id or URL. Raises `UnknownReplicaError`, and `AddressError` for a URL that cannot be a replica's."""
        replica = ReplicaId(named)
        if replica not in self._members and "://" in named:
            check_address(named)
            replica = ReplicaId(replica_name(named))
        if replica not in self._members:
            there_are = ", ".join(sorted(self._members)) or "none"
            raise UnknownReplicaError(f"no replica is called {named!r}; there are: {there_are}")
        return self._members[replica]

    def url(self, replica: ReplicaId) -> str:
        """The base URL of a replica, also of one that has just left and still has a turn to come."""
        member = self._members.get(replica)
        return self._gone[replica] if member is None else member.url

    def up(self) -> list[Member]:
        """The replicas that answered when last looked at and take sessions."""
        return [member for member in self if member.up and member.takes_sessions]

    def served_models(self) -> tuple[str, ...]:
        """All models that replicas have told, also those that are down."""
        told = [member.models for member in self]
        if told != self._told:
            self._told = told
            self._served = tuple(dict.fromkeys(model for models in told for model in models or ()))
        return self._served

    def model_of(self, asked: str | None) -> str:
        """The model that a request is scheduled by: what it asks for, or what that stands for; empty: any.

        SGLang names an adapter `MODEL:ADAPTER`. What is told decides; any other name is left to replicas that do not tell,
        and where nothing is known yet, to those that come. Raises `UnknownModelError` where no replica serves it.
        """
        served = self.served_models()
        if not asked or asked in served:
            return asked or ""
        aliases = self._config.model_aliases
        meant = aliases.get(asked)
        for name in (meant, asked.partition(":")[0], aliases.get("*")):
            if name in served:
                return name
        if any(member.may_serve_any for member in self):
            return asked
        if not served:
            return meant or asked
        raise UnknownModelError(
            f"The model `{asked[:NAME_SHOWN_MAX]}` does not exist on any replica; there are: {', '.join(served)}"
        )

    def cached_tokens(self, replica: ReplicaId, dialect: str, told_tokens: int | None) -> int | None:
        """See `Member.cached_tokens`; of one that has just left, what it told."""
        member = self._members.get(replica)
        return told_tokens if member is None else member.cached_tokens(dialect, told_tokens)

    def suspect(self, replica: ReplicaId) -> None:
        """A request to this replica failed: look at it now."""
        member = self._members.get(replica)
        if member is not None:
            member.nudge.set()

    # --- joining, draining, leaving ---------------------------------------------------------------------------------

    def add(self, url: str, slots: int | None = None) -> Member:
        """Have this replica from now on; one that drains or is about to leave stays and takes sessions again.

        With another URL of the same name (https in place of http) it is looked at anew. `slots`: how many sessions it
        takes at once; None: as the configuration says.
        """
        replica = ReplicaId(replica_name(url))
        member = self._members.get(replica)
        if member is None:
            member = self._members[replica] = Member(replica, url.rstrip("/"), own_slots=slots)
            self._gone.pop(replica, None)
            if self._pulses is not None:
                self._pulses.create_task(self._watch(member))
            return member
        if not same_address(url, member.url):
            self._readdress(member, url.rstrip("/"))
        if member.takes_sessions and slots == member.own_slots:
            return member
        what = "slots changed" if member.takes_sessions else "replica takes sessions again"
        member.draining, member.leave_at, member.own_slots = False, None, slots
        self._log.info(what, replica=replica, slots=self._slots(replica, slots, member.slots))
        if member.up:
            self._join(member)
        return member

    def _readdress(self, member: Member, url: str) -> None:
        """What was there is lost, as if it had gone down; what is at the new URL has to answer first."""
        self._log.warning("replica has another URL", replica=member.id, url=url, before=member.url)
        self._forget_urls([member.url])
        member.url = url
        member.failures, member.sighting = 0, Sighting(False, "not looked at yet")
        self.reconciliation.forget(member.id)
        if member.up:
            self._lose(member)
        member.nudge.set()

    def drain(self, replica: ReplicaId) -> None:
        """What runs there finishes; nothing new is sent there. Also keeps one that was about to leave."""
        member = self._members[replica]
        if member.draining and member.leave_at is None:
            return
        began = member.takes_sessions
        member.draining, member.leave_at = True, None
        if began:
            self._begin_draining(member)

    def remove(self, replica: ReplicaId, seconds_max: float) -> None:
        """Drain it, and forget it when nothing runs there any more, at the latest after `seconds_max`."""
        member = self._members[replica]
        if member.leave_at is not None:
            return
        began = member.takes_sessions
        member.leave_at = asyncio.get_running_loop().time() + seconds_max
        if began:
            self._begin_draining(member)
        member.nudge.set()

    def _begin_draining(self, member: Member) -> None:
        self._log.info("replica drains", replica=member.id, leaves=member.leave_at is not None)
        if member.up:
            self._driver.feed(ReplicaDraining(self._driver.clock.now(), member.id))

    def _forget_if_due(self, member: Member) -> bool:
        """Forget a replica that is wanted no more once it may be; whether it is forgotten."""
        if member.leave_at is None:
            return False
        known = self._driver.scheduler.view.replicas.get(member.id)
        turns = 0 if known is None else known.turns_in_flight
        if turns and asyncio.get_running_loop().time() < member.leave_at:
            return False
        del self._members[member.id]
        self.reconciliation.removed(member.id)
        self._log.info("replica removed", replica=member.id, turns_left=turns)
        if known is not None:
            self._driver.feed(ReplicaRemoved(self._driver.clock.now(), member.id))
        still = self._driver.scheduler.view.replicas
        # To those that had gone before, turns may have gone since.
        self._forget_urls((member.url, *self._gone.values()))
        self._gone = {gone: url for gone, url in self._gone.items() if gone in still}
        self._gone[member.id] = member.url
        return True

    def _forget_urls(self, urls: Iterable[str]) -> None:
        for url in urls:
            for forget in self._forgets:
                forget(url)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look at every replica every period, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._pulses = group
            for member in self:
                group.create_task(self._watch(member))
            await asyncio.Event().wait()  # the group is open for replicas to come

    async def look_once(self) -> None:
        """One look at every replica, all at the same time."""
        await asyncio.gather(*(self._look(member) for member in tuple(self)))

    def describe(self) -> list[dict[str, object]]:
        """What was last seen of each replica, as JSON-ready data."""
        return [member.describe() for member in self]

    async def _watch(self, member: Member) -> None:
        while not self._forget_if_due(member):
            try:
                await self._look(member)
            except Exception:  # one that cannot be read must not end the pulse of the others
                self._log.exception("looking at a replica failed", replica=member.id)
            if self._forget_if_due(member):
                return
            try:
                async with asyncio.timeout(self._config.health.period_seconds):
                    await member.nudge.wait()
            except TimeoutError:
                continue
            member.nudge.clear()

    async def _look(self, member: Member) -> None:
        before, url, looked_at = member.sighting, member.url, self.reconciliation.clock()
        seen = await self._probe.look(url, self._config.health.timeout_seconds)
        if url != member.url:
            return  # that was said of another one
        if seen.missing and not member.up:  # nothing may go there before it has said what it is
            seen = replace(seen, healthy=False, detail=seen.missing[0])
        member.sighting = seen
        capacity_known = seen.capacity_tokens or member.capacity_tokens or self._config.capacity_tokens
        self.reconciliation.looked(member.id, seen, capacity_known, looked_at)
        if not seen.healthy:
            self._missed(member, seen)
            return
        member.failures = 0
        for problem in seen.problems if not member.up else new_problems(before, seen):
            self._log.warning("replica does not tell", replica=member.id, problem=problem)
        restarted = member.restarted(seen)
        member.remember(seen)
        if member.up and restarted:
            self._log.warning("replica restarted: its cache is empty", replica=member.id)
            self._lose(member)
        capacity_tokens = self._capacity(member)
        known = self._driver.scheduler.view.replicas.get(member.id)
        if not member.up:
            if not seen.missing:
                await self._come_up(member, seen)
            return
        if known is not None and capacity_tokens != known.capacity_tokens:
            self._log.info("capacity changed", replica=member.id, capacity_tokens=capacity_tokens)
            self._driver.feed(CapacityChanged(self._driver.clock.now(), member.id, capacity_tokens))
        if known is not None and member.models != known.models:
            self._log.info("models changed", replica=member.id, models=member.models)
            self._driver.feed(ModelsChanged(self._driver.clock.now(), member.id, member.models))

    async def _come_up(self, member: Member, seen: Sighting) -> None:
        url = member.url
        slots = await self._probe.slots(url, seen, self._config.health.timeout_seconds)
        if url != member.url:
            return
        member.slots, member.up = slots, True
        self._log.info(
            "replica is up",
            replica=member.id,
            engine=seen.engine,
            capacity_tokens=seen.capacity_tokens,
            models=member.models,
            slots=self._slots(member.id, member.own_slots, member.slots),
        )
        if member.takes_sessions:
            self._join(member)

    def _join(self, member: Member) -> None:
        capacity_tokens = self._capacity(member)
        at, slots = self._driver.clock.now(), self._slots(member.id, member.own_slots, member.slots)
        self._driver.feed(ReplicaJoined(at, member.id, capacity_tokens, models=member.models, slots=slots))

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
        member.tells_cached.clear()  # the next process may be told to report otherwise
        self._driver.feed(ReplicaLost(self._driver.clock.now(), member.id))

    def _capacity(self, member: Member) -> int:
        return member.capacity_tokens or self._config.capacity_tokens or UNKNOWN_CAPACITY_TOKENS
