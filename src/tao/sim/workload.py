"""The load of a simulated run: recorded sessions, played by workers in a closed loop or arriving by chance.

A worker takes the next session when its last one has ended. Between two turns a session waits for its tool, for its
sub-agents (which run beside the workers), or for a human (capped). The rules are those of the live load client
(`tao.replay`). The workload knows when sessions start and how long they are away; it does not know where turns go.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tao.core.ids import SessionId
from tao.sim.played import PlayedSession
from tao.traces.delay import fixed_delay_seconds
from tao.traces.family import family_trees
from tao.traces.model import TraceSession


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """`human_wait_seconds_max`: cap on each wait for a human. `system_tokens`: shared prompt where none is recorded.

    `tool_delay_seconds`: (least, most) of one fixed extra delay per session, drawn by `seed` (paper, appendix G).
    `ends_told`: clients release their sessions; most of today's do not, and the scheduler has to find out.
    `returns_told`: every tool exposes when it will return: what a scheduler could do that knows all durations.
    """

    human_wait_seconds_max: float = 30.0
    system_tokens: int = 0
    tool_delay_seconds: tuple[float, float] | None = None
    seed: int = 0
    ends_told: bool = True
    returns_told: bool = False

    def __post_init__(self) -> None:
        if self.human_wait_seconds_max < 0 or self.system_tokens < 0:
            raise ValueError("neither the cap on human waits nor the system prompt can be negative")
        if self.tool_delay_seconds is not None:
            least, most = self.tool_delay_seconds
            if not 0 <= least <= most < float("inf"):
                raise ValueError(f"a tool delay needs 0 <= least <= most, not {least:g}:{most:g}")


class Arrivals(Protocol):
    """When sessions start."""

    def first(self, sessions: deque[TraceSession]) -> Iterator[tuple[float, TraceSession]]:
        """Take the sessions that start by themselves, with their times."""

    def after_end(self, sessions: deque[TraceSession]) -> TraceSession | None:
        """Take the session that starts because one has ended."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`workers` workers; each starts the next session when its last one has ended."""

    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"a closed loop needs at least 1 worker, not {self.workers}")

    def first(self, sessions: deque[TraceSession]) -> Iterator[tuple[float, TraceSession]]:
        for _ in range(min(self.workers, len(sessions))):
            yield 0.0, sessions.popleft()

    def after_end(self, sessions: deque[TraceSession]) -> TraceSession | None:
        return sessions.popleft() if sessions else None


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Sessions arrive by chance, `rate_per_second` on average, whatever becomes of the earlier ones."""

    rate_per_second: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_second < float("inf"):
            raise ValueError(f"the arrival rate must be greater than 0, not {self.rate_per_second!r}")

    def first(self, sessions: deque[TraceSession]) -> Iterator[tuple[float, TraceSession]]:
        chance = random.Random(f"{self.seed} arrivals")  # noqa: S311 - repeatable, not a secret
        at = 0.0
        while sessions:
            at += chance.expovariate(self.rate_per_second)
            yield at, sessions.popleft()

    def after_end(self, sessions: deque[TraceSession]) -> TraceSession | None:  # noqa: ARG002
        return None


class Workload:
    """The sessions of one run. Raises ValueError where ids are not unique or parents form a circle."""

    def __init__(
        self, sessions: Sequence[TraceSession], arrivals: Arrivals, settings: WorkloadSettings
    ) -> None:
        roots, self._children = family_trees(sessions)
        self.sessions = len(sessions)
        self.turns = sum(len(session.turns) for session in sessions)
        self._waiting = deque(roots)
        self._arrivals = arrivals
        self._settings = settings
        self.ends_told = settings.ends_told
        self.returns_told = settings.returns_told

    def first(self) -> list[tuple[float, PlayedSession]]:
        """Sessions that start by themselves, with their times."""
        return [(at, self._play(trace)) for at, trace in self._arrivals.first(self._waiting)]

    def after_end(self, ended: PlayedSession) -> PlayedSession | None:
        """The session that starts because `ended` has ended; a sub-agent holds no worker."""
        if ended.is_child:
            return None
        trace = self._arrivals.after_end(self._waiting)
        return None if trace is None else self._play(trace)

    def children_of(self, session: PlayedSession) -> list[PlayedSession]:
        """The sub-agents that the session starts now that its turn in play has ended."""
        if not self._children:
            return []
        awaited_by = session if session.waits_for_children() else None
        found = self._children.get((session.trace.session_id, session.next_turn), ())
        return [self._play(trace, is_child=True, awaited_by=awaited_by) for trace in found]

    def _play(
        self, trace: TraceSession, *, is_child: bool = False, awaited_by: PlayedSession | None = None
    ) -> PlayedSession:
        settings = self._settings
        delay_seconds = 0.0
        if settings.tool_delay_seconds is not None:
            span = settings.tool_delay_seconds
            delay_seconds = fixed_delay_seconds(trace.session_id, span, settings.seed)
        return PlayedSession(
            id=SessionId(trace.session_id),
            trace=trace,
            is_child=is_child,
            awaited_by=awaited_by,
            system_tokens=settings.system_tokens,
            tool_delay_seconds=delay_seconds,
            human_wait_seconds_max=settings.human_wait_seconds_max,
        )
