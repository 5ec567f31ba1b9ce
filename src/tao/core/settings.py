"""Bounds of the core. Each wait has a deadline and each table a size; these are they."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """`hold_seconds_max`: a held session is placed by force after this time.

    `no_replica_seconds_max`: how long a turn may wait for any replica to be up. `idle_seconds_max`: a session that is not
    heard of for this time is forgotten. `plan_seconds_max`: a plan that took longer is given up. `sessions_max`,
    `held_turns_max`: table sizes; a turn beyond the latter is refused.
    """

    hold_seconds_max: float = 300.0
    no_replica_seconds_max: float = 30.0
    idle_seconds_max: float = 600.0
    plan_seconds_max: float = 10.0
    sessions_max: int = 20_000
    held_turns_max: int = 4_096

    def __post_init__(self) -> None:
        for name in ("hold_seconds_max", "no_replica_seconds_max", "idle_seconds_max", "plan_seconds_max"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")
        for name in ("sessions_max", "held_turns_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
