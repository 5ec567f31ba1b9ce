"""Which replicas are wanted, and the fleet brought in line with that.

Several sources tell sets of replicas; operators add, drain and remove single ones, and their word counts more. A replica
is wanted while any source names it, and drains where all that name it say so; of its slots the first that says some counts.
What is wanted no more drains first and is forgotten when nothing runs there. It must not know HTTP, nor how a source finds
its replicas.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from tao.core.ids import ReplicaId
from tao.gateway.fleet import Fleet
from tao.gateway.sources import (
    AddressError,
    ReplicaSource,
    Wanted,
    check_address,
    replica_name,
    same_address,
)

CONFIGURED = "configuration"
OPERATOR = "operator"
REPLICAS_MAX = 4096
SOURCE_PAUSE_SECONDS = 5.0


class Overruling(StrEnum):
    """What an operator said against the sources; it holds until the replica is added again, or nothing names it."""

    DRAIN = "drain"
    REMOVE = "remove"


@dataclass(slots=True)
class _Told:
    """The last set of one source, by replica; None before the first."""

    wanted: dict[ReplicaId, Wanted] | None = None
    first: asyncio.Event = field(default_factory=asyncio.Event)


class Roster:
    """Keeps the fleet in line with its sources. `removal_seconds_max`: see `Fleet.remove`."""

    def __init__(
        self,
        fleet: Fleet,
        configured: Sequence[str],
        sources: Sequence[ReplicaSource],
        removal_seconds_max: float,
    ) -> None:
        self._fleet = fleet
        self._sources = tuple(sources)
        self._told: dict[str, _Told] = {CONFIGURED: _Told(_by_id([Wanted(url) for url in configured]))}
        self._told |= {source.name: _Told() for source in self._sources}
        self._added: dict[ReplicaId, Wanted] = {}
        self._slots: dict[ReplicaId, int] = {}  # what operators said; it holds as long as what is overruled
        self._overruled: dict[ReplicaId, Overruling] = {}
        self._removal_seconds_max = removal_seconds_max
        self._log = structlog.get_logger("tao.roster")

    async def follow(self) -> None:
        """Take in what the sources tell, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._follow(source))

    async def first_sets(self, seconds_max: float) -> None:
        """Wait until each source has told a set, but no longer than that: replicas may come later."""
        try:
            async with asyncio.timeout(seconds_max):
                for source in self._sources:
                    await self._told[source.name].first.wait()
        except TimeoutError:
            silent = [source.name for source in self._sources if not self._told[source.name].first.is_set()]
            self._log.warning("sources that have told no replicas yet", sources=silent)

    def add(self, url: str, slots: int | None = None) -> ReplicaId:
        """Have this replica; what an operator said of it before is as if it had not been said.

        `slots`: how many sessions it takes at once, whatever a source says; None: as the sources and the configuration say.
        Raises `AddressError` for a URL that cannot be one.
        """
        check_address(url)
        replica = ReplicaId(replica_name(url))
        self._overruled.pop(replica, None)
        self._slots.pop(replica, None)
        named = self._named(replica)
        if not named and len(self._fleet) >= REPLICAS_MAX:
            raise AddressError(f"there are {REPLICAS_MAX} replicas already")
        if not named or replica in self._added or not same_address(self._wanted()[replica].url, url):
            self._added[replica] = Wanted(url)
        if slots is not None:
            self._slots[replica] = slots
        self._reconcile()
        return replica

    def drain(self, named: str) -> ReplicaId:
        """What runs there finishes, nothing new is sent there. One that was about to leave stays until it is removed, as if
        an operator had added it. By id or URL; raises as `Fleet.find` does.
        """
        member = self._fleet.find(named)
        replica = member.id
        if not self._named(replica):
            self._added[replica] = Wanted(member.url, slots=member.own_slots)
        self._overruled[replica] = Overruling.DRAIN
        self._reconcile()
        return replica

    def remove(self, named: str) -> ReplicaId:
        """Drain it and forget it, whatever names it. By id or URL; raises as `Fleet.find` does."""
        replica = self._fleet.find(named).id
        self._added.pop(replica, None)
        self._overruled[replica] = Overruling.REMOVE
        self._reconcile()
        return replica

    def describe(self) -> list[dict[str, object]]:
        """Each source with what it wants and what is wrong with it, as JSON-ready data."""
        problems = {source.name: source.problem for source in self._sources}
        told: list[dict[str, object]] = [
            {
                "source": name,
                "replicas": None if each.wanted is None else list(each.wanted),
                "problem": problems.get(name),
            }
            for name, each in self._told.items()
        ]
        orders = {replica: order.value for replica, order in self._overruled.items()}
        return [*told, {"source": OPERATOR, "replicas": list(self._added), "orders": orders, "problem": None}]

    async def _follow(self, source: ReplicaSource) -> None:
        while True:
            try:
                async for wanted in source.desired():
                    self._take(source.name, wanted)
            except Exception:  # a defect of one source must not end the others
                self._log.exception("a source of replicas failed; it is asked again", source=source.name)
            await asyncio.sleep(SOURCE_PAUSE_SECONDS)

    def _take(self, source: str, wanted: Sequence[Wanted]) -> None:
        told = self._told[source]
        if len(wanted) > REPLICAS_MAX:
            self._log.error("a source names too many replicas: ignored", source=source, count=len(wanted))
            return
        told.wanted = _by_id(wanted)
        self._reconcile()
        told.first.set()

    def _named(self, replica: ReplicaId) -> bool:
        """Whether a source or an operator wants it."""
        if replica in self._added:
            return True
        return any(replica in told.wanted for told in self._told.values() if told.wanted is not None)

    def _wanted(self) -> dict[ReplicaId, Wanted]:
        """All that should be there, in the order of the sources."""
        wanted: dict[ReplicaId, Wanted] = {}
        for told in (*(each.wanted for each in self._told.values()), self._added):
            for replica, each in (told or {}).items():
                before = wanted.get(replica, each)
                draining, slots = before.draining and each.draining, before.slots or each.slots
                wanted[replica] = Wanted(before.url, draining, slots)
        for replica, added in self._added.items():
            wanted[replica] = replace(wanted[replica], url=added.url)
        for replica, slots in self._slots.items():
            wanted[replica] = replace(wanted[replica], slots=slots)
        for replica, order in self._overruled.items():
            if order is Overruling.REMOVE:
                wanted.pop(replica, None)
            else:
                wanted[replica] = replace(wanted[replica], draining=True)
        return wanted

    def _reconcile(self) -> None:
        self._overruled = {
            replica: order for replica, order in self._overruled.items() if self._named(replica)
        }
        self._slots = {replica: slots for replica, slots in self._slots.items() if self._named(replica)}
        wanted = self._wanted()
        for replica, each in wanted.items():
            if not each.draining:
                self._fleet.add(each.url, each.slots)
            else:
                if all(member.id != replica for member in self._fleet):
                    self._fleet.add(each.url, each.slots)
                self._fleet.drain(replica)
        for member in tuple(self._fleet):
            if member.id not in wanted:
                self._fleet.remove(member.id, self._removal_seconds_max)


def _by_id(wanted: Sequence[Wanted]) -> dict[ReplicaId, Wanted]:
    return {ReplicaId(replica_name(each.url)): each for each in wanted}
