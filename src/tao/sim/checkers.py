"""What must hold of every run, checked from the log of events and commands alone.

The checkers are observers. They know what events and commands mean, and nothing of how the core or a policy works: a
defect of the core's own books cannot hide itself here. Each keeps the first few violations as sentences.
"""

from collections.abc import Sequence
from typing import Protocol

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import (
    AdmitSession,
    CloseSession,
    Command,
    DispatchTurn,
    InterruptSession,
    RefuseTurn,
    StopTurn,
)
from tao.core.events import (
    ClientLeft,
    Event,
    ReplicaDraining,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnStopped,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.sim.capacity import AdmissionsFit

VIOLATIONS_KEPT = 10
TOLERANCE_SECONDS = 1e-6


class Checker(Protocol):
    """An observer that finds fault."""

    violations: list[str]

    @property
    def watches(self) -> frozenset[type[Event]]: ...

    def __call__(self, event: Event, commands: Sequence[Command]) -> None: ...

    def end(self, at: float) -> None:
        """The run is over: what is open now has been forgotten."""


class TurnsEndOnce:
    """Each turn that arrives ends exactly once, is on one engine at a time, and no session is interrupted in a turn."""

    watches = frozenset({TurnArrived, TurnFailed, TurnFinished, TurnStopped, ClientLeft})

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._held: dict[TurnId, SessionId] = {}
        self._sent: dict[TurnId, SessionId] = {}
        self._failed: dict[TurnId, SessionId] = {}  # by a failure that may be retried, within one event
        self._in_flight: dict[SessionId, int] = {}

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        match event:
            case TurnArrived():
                if event.turn not in self._sent and event.turn not in self._held:
                    self._held[event.turn] = event.session
            case TurnFailed() if event.retryable:
                session = self._take_back(event.turn)
                if session is not None:
                    self._failed[event.turn] = session
            case TurnFinished() | TurnFailed() | TurnStopped():
                self._take_back(event.turn)
                if event.turn in self._held:
                    self._say(event.at, f"turn {event.turn} ended although it was never dispatched")
            case ClientLeft():
                self._held.pop(event.turn, None)
        for command in commands:
            self._command(event.at, command)
        self._failed.clear()  # stopped already, hence over without a retry

    def end(self, at: float) -> None:
        for turn in (*self._held, *self._sent):
            self._say(at, f"turn {turn} has not ended")

    def _command(self, at: float, command: Command) -> None:
        match command:
            case DispatchTurn():
                session = self._open(command.turn)
                if session is None:
                    self._say(at, f"turn {command.turn} is dispatched although it is not waiting")
                    return
                self._sent[command.turn] = session
                self._in_flight[session] = self._in_flight.get(session, 0) + 1
            case RefuseTurn():
                if self._open(command.turn) is None:
                    self._say(at, f"turn {command.turn} is refused although it is not waiting")
            case StopTurn():
                if command.turn not in self._sent:
                    self._say(at, f"turn {command.turn} is stopped although no engine has it")
            case InterruptSession():
                if self._in_flight.get(command.session):
                    self._say(at, f"session {command.session} is interrupted in the middle of a turn")

    def _open(self, turn: TurnId) -> SessionId | None:
        session = self._held.pop(turn, None)
        return session if session is not None else self._failed.pop(turn, None)

    def _take_back(self, turn: TurnId) -> SessionId | None:
        session = self._sent.pop(turn, None)
        if session is not None:
            self._in_flight[session] -= 1
            if not self._in_flight[session]:
                del self._in_flight[session]
        return session

    def _say(self, at: float, what: str) -> None:
        say(self.violations, at, what)


class WaitsAreBounded:
    """No turn is held longer than the settings allow, and the core's own count of the hold is right."""

    watches = frozenset(
        {TurnArrived, ClientLeft, ReplicaJoined, ReplicaLost, ReplicaRemoved, ReplicaDraining}
    )

    def __init__(self, settings: SchedulerSettings) -> None:
        self.violations: list[str] = []
        self._hold_seconds_max = settings.hold_seconds_max
        self._no_replica_seconds_max = settings.no_replica_seconds_max
        self._up: dict[ReplicaId, None] = {}
        self._was_none_up = False
        self._held: dict[TurnId, float] = {}  # oldest first

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        match event:
            case TurnArrived():
                self._held.setdefault(event.turn, event.at)
            case ClientLeft():
                self._held.pop(event.turn, None)
            case ReplicaJoined():
                self._up[event.replica] = None
            case ReplicaLost() | ReplicaRemoved() | ReplicaDraining():
                self._up.pop(event.replica, None)
                self._was_none_up = self._was_none_up or not self._up
        for command in commands:
            match command:
                case DispatchTurn():
                    since = self._held.pop(command.turn, None)
                    if since is not None and abs(event.at - since - command.hold_seconds) > TOLERANCE_SECONDS:
                        told, real = command.hold_seconds, event.at - since
                        self._say(event.at, f"turn {command.turn} was held {real:g} s, not {told:g} s")
                case RefuseTurn():
                    self._held.pop(command.turn, None)
        self._check_oldest(event.at)

    def end(self, at: float) -> None:
        self._check_oldest(at)

    def _check_oldest(self, at: float) -> None:
        if not self._held:
            return
        turn, since = next(iter(self._held.items()))
        bound = self._hold_seconds_max + (self._no_replica_seconds_max if self._was_none_up else 0.0)
        if at - since > bound + TOLERANCE_SECONDS:
            self._say(at, f"turn {turn} is held for {at - since:g} s; the bound is {bound:g} s")

    def _say(self, at: float, what: str) -> None:
        say(self.violations, at, what)


class NothingIsLeft:
    """At the end every session that was admitted has been closed, and none was closed twice."""

    watches: frozenset[type[Event]] = frozenset()

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._admitted: dict[SessionId, None] = {}

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002
        for command in commands:
            match command:
                case AdmitSession():
                    self._admitted[command.session] = None
                case CloseSession():
                    self._admitted.pop(command.session, None)

    def end(self, at: float) -> None:
        for session in self._admitted:
            say(self.violations, at, f"session {session} was never closed")


class InvariantsHold:
    """The core's own account of itself, asked now and then in runs with faults. Raises; its cost grows with sessions."""

    watches = frozenset({TurnArrived, TurnFinished, ReplicaLost, ReplicaJoined, ClientLeft})

    def __init__(self, scheduler: Scheduler, every_events: int = 25) -> None:
        self._scheduler = scheduler
        self._every_events = every_events
        self._events = 0

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002
        self._events += 1
        if self._events % self._every_events == 0:
            self._scheduler.check_invariants()

    def end(self, at: float) -> None:  # noqa: ARG002
        self._scheduler.check_invariants()


def all_checkers(settings: SchedulerSettings) -> tuple[Checker, ...]:
    """A fresh set, for one run."""
    return TurnsEndOnce(), WaitsAreBounded(settings), AdmissionsFit(), NothingIsLeft()


def say(violations: list[str], at: float, what: str) -> None:
    """Keep a violation, the first few of them."""
    if len(violations) < VIOLATIONS_KEPT:
        violations.append(f"at {at:.3f} s: {what}")
