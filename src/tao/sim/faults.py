"""What goes wrong in a run with faults, drawn by seed: which kinds, how often, how badly, and when it all heals.

Each seed draws a swarm: some kinds of fault are on, others off, so that over many seeds rare combinations meet. This file
only decides; `tao.sim.faulty` makes things go wrong.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tao.core.ids import ReplicaId
from tao.enginemodel import Profile
from tao.sim.scaling import scaled

SHARE_ON = 0.6
"""How likely each kind of fault is part of a seed's swarm."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Shares are chances per occasion; gaps are mean seconds between timed faults, None where there are none.

    - `slow_replica`: (index, factor): every step of that replica takes so many times as long.
    - `death_gap_seconds`: a replica dies, its turns fail; it comes back empty after `outage_seconds` on average, and
      nobody notices for `notice_seconds`.
    - `eviction_gap_seconds`: traffic of others displaces a good part of a replica's cache.
    - `stale_gap_seconds`: a replica reports a wrong capacity for a while.
    - `abort_lost_share` of aborts never reach the engine. `duplicate_share` of completions are told twice.
    - `client_leaves_share` of turns: the client hangs up, then ends its session, sends the turn again, or vanishes.
    - `tool_lost_share` of tool calls never return. `plan_late_share` of plans take `plan_late_seconds` longer.
    - After `heal_at` nothing new goes wrong, and what is down comes back.
    """

    slow_replica: tuple[int, float] | None
    death_gap_seconds: float | None
    outage_seconds: float
    notice_seconds: float
    eviction_gap_seconds: float | None
    stale_gap_seconds: float | None
    abort_lost_share: float
    duplicate_share: float
    client_leaves_share: float
    tool_lost_share: float
    plan_late_share: float
    plan_late_seconds: float
    heal_at: float

    @classmethod
    def drawn(cls, seed: int, replicas: int) -> "FaultPlan":
        """The swarm of a seed."""
        chance = random.Random(f"{seed} faults")  # noqa: S311 - repeatable, not a secret

        def share(most: float) -> float:
            return chance.uniform(0.0, most) if chance.random() < SHARE_ON else 0.0

        def gap(least: float, most: float) -> float | None:
            return chance.uniform(least, most) if chance.random() < SHARE_ON else None

        slow = (chance.randrange(replicas), chance.uniform(1.5, 6.0)) if chance.random() < SHARE_ON else None
        return cls(
            slow_replica=slow,
            death_gap_seconds=gap(60, 400),
            outage_seconds=chance.choice((0.0, 5.0, 60.0)),
            notice_seconds=chance.choice((0.0, 1.0, 10.0)),
            eviction_gap_seconds=gap(10, 120),
            stale_gap_seconds=gap(20, 200),
            abort_lost_share=share(1.0),
            duplicate_share=share(0.2),
            client_leaves_share=share(0.1),
            tool_lost_share=share(0.05),
            plan_late_share=share(0.3),
            plan_late_seconds=chance.uniform(0.5, 30.0),
            heal_at=chance.uniform(100, 1000),
        )

    def profile_of(self, index: int, profile: Profile) -> Profile:
        """The profile of a replica: the given one, slowed down for the slow replica."""
        if self.slow_replica is None or self.slow_replica[0] != index:
            return profile
        return scaled(profile, decode=self.slow_replica[1], prefill=self.slow_replica[1])


class Dice:
    """One stream of chance for each purpose, so that what one fault draws changes nothing of another."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, purpose: str) -> random.Random:
        """The stream of a purpose."""
        if purpose not in self._streams:
            self._streams[purpose] = random.Random(f"{self._seed} {purpose}")  # noqa: S311
        return self._streams[purpose]

    def happens(self, purpose: str, share: float) -> bool:
        """Whether it happens this time."""
        return share > 0 and self.of(purpose).random() < share

    def replica(self, purpose: str, replicas: Sequence[ReplicaId]) -> ReplicaId:
        """One of the replicas."""
        return self.of(purpose).choice(replicas)
