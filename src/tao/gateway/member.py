"""One replica of the fleet, and what one look at it showed.

What an engine told once is remembered until it tells something else. It must not know the core, nor how an engine is asked.
"""

import asyncio
import re
from dataclasses import dataclass, field

from tao.core.ids import ReplicaId
from tao.engines import ServedTokens

_NUMBERS = re.compile(r"[0-9][0-9.e+-]*")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one look at a replica showed. What it has `served` grows while the engine lives; less means a restart, and so
    does another `started_at` (when its process began).

    `refused`: nothing listens there, so there is no point in asking twice. `models`: what it serves; None where it does not
    tell. `ranks`: how many data-parallel ones there are. `problems`: what the engine does not tell. `missing`: of these, the
    pages that were late, broke off or failed for the moment, and why: what they told last still counts.
    """

    healthy: bool
    detail: str = ""
    refused: bool = False
    capacity_tokens: int | None = None
    served: ServedTokens = field(default_factory=ServedTokens)
    started_at: float | None = None
    engine: str = ""
    models: tuple[str, ...] | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    ranks: int = 1
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(slots=True)
class Member:
    """One replica of the fleet. `leave_at`: wanted no more, and forgotten at this time at the latest (loop's clock)."""

    id: ReplicaId
    url: str
    up: bool = False
    draining: bool = False
    leave_at: float | None = None
    answered: bool = False  # healthy, at least once
    failures: int = 0
    capacity_tokens: int | None = None  # the last that the engine told
    models: tuple[str, ...] | None = None  # likewise
    served: ServedTokens = field(default_factory=ServedTokens)  # likewise
    started_at: float | None = None  # likewise
    slots: int | None = None  # what the engine told when it came up
    own_slots: int | None = None  # what is said of it where it is named
    sighting: Sighting = field(default_factory=lambda: Sighting(False, "not looked at yet"))
    tells_cached: dict[str, None] = field(default_factory=dict)  # the dialects in which it told some
    nudge: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def takes_sessions(self) -> bool:
        """Whether sessions may be placed there while it is up."""
        return not self.draining and self.leave_at is None

    @property
    def may_serve_any(self) -> bool:
        """Whether it has answered and does not tell its models. One that never answered says nothing about models."""
        return self.answered and self.models is None

    def serves(self, model: str) -> bool:
        """Whether a request for the model may go there; empty: it names none."""
        return not model or self.models is None or model in self.models

    def cached_tokens(self, dialect: str, told_tokens: int | None) -> int | None:
        """What an answer says of cached tokens. Engines leave the count out where it is zero, so once one has told more
        in this dialect, no count is zero. A zero that was told says nothing of what a missing count means.
        """
        if told_tokens:
            self.tells_cached[dialect] = None
        return 0 if told_tokens is None and dialect in self.tells_cached else told_tokens

    def restarted(self, now: Sighting) -> bool:
        """Whether the engine has begun anew since the last look."""
        began = self.started_at
        if now.served.is_below(self.served):
            return True
        return began is not None and now.started_at is not None and now.started_at != began

    def remember(self, seen: Sighting) -> None:
        """What the engine told last counts: one incomplete page does not make a replica boundless."""
        self.answered = True
        if seen.capacity_tokens is not None:
            self.capacity_tokens = seen.capacity_tokens
        if seen.models is not None:
            self.models = seen.models
        self.served = seen.served.or_last(self.served)
        if seen.started_at is not None:
            self.started_at = seen.started_at

    def describe(self) -> dict[str, object]:
        """What was last seen of it, as JSON-ready data."""
        seen = self.sighting
        return {
            "id": self.id,
            "url": self.url,
            "up": self.up,
            "draining": not self.takes_sessions,
            "leaving": self.leave_at is not None,
            "detail": seen.detail,
            "engine": seen.engine,
            "models": None if self.models is None else list(self.models),
            "capacity_tokens": seen.capacity_tokens,
            "slots": self.slots,
            "own_slots": self.own_slots,
            "running": seen.running,
            "waiting": seen.waiting,
            "kv_usage": seen.kv_usage,
            "problems": list(seen.problems),
        }


def new_problems(before: Sighting, now: Sighting) -> list[str]:
    """The problems that were not there before; one that differs in its numbers only is the same."""
    known = {_NUMBERS.sub("#", problem) for problem in before.problems}
    return [problem for problem in now.problems if _NUMBERS.sub("#", problem) not in known]
