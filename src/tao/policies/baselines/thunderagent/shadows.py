"""Programs on ThunderAgent's books whose sessions the core has let go: they take room although nobody is there.

Cooperative clients release their programs and leave no shadow. Those that never release leave an ACTING one for ever;
a request that fails leaves a REASONING one until the program's next request (a defect of the original).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from tao.core.facts import Fact, SessionClosed, SessionInterrupted, ToolStarted, TurnDispatched, TurnSettled
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import turns_of
from tao.core.ports import View

SHADOWS_MAX = 65_536
"""Oldest shadows are dropped beyond this number, so that a gateway can run with them for long."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """`replica` None: it is paused. `acting_since` None: it counts as REASONING."""

    id: SessionId
    tokens: int
    replica: ReplicaId | None
    acting_since: float | None
    origin: ReplicaId | None = None


class Shadows(Protocol):
    """The policy's books of programs that are gone."""

    def observe(self, view: View, fact: Fact) -> None:
        """Sessions come and go."""

    def on(self, replica: ReplicaId) -> Iterable[Shadow]:
        """Shadows that take room on the replica."""

    def paused(self) -> Iterable[Shadow]:
        """Shadows that would be resumed."""

    def move(self, shadow: Shadow, replica: ReplicaId | None) -> None:
        """Pause a shadow (None) or resume it on a replica."""

    def of(self, session: SessionId) -> Shadow | None:
        """The shadow that the session's earlier life has left."""


class _Book:
    """Shadows by id, oldest first, bounded."""

    def __init__(self) -> None:
        self._shadows: dict[SessionId, Shadow] = {}

    def on(self, replica: ReplicaId) -> Iterable[Shadow]:
        return [shadow for shadow in self._shadows.values() if shadow.replica == replica]

    def paused(self) -> Iterable[Shadow]:
        return [shadow for shadow in self._shadows.values() if shadow.replica is None]

    def move(self, shadow: Shadow, replica: ReplicaId | None) -> None:
        self._shadows[shadow.id] = replace(shadow, replica=replica, origin=replica or shadow.replica)

    def of(self, session: SessionId) -> Shadow | None:
        return self._shadows.get(session)

    def add(self, shadow: Shadow) -> None:
        while len(self._shadows) >= SHADOWS_MAX:
            del self._shadows[next(iter(self._shadows))]
        self._shadows[shadow.id] = shadow

    def drop(self, session: SessionId) -> None:
        self._shadows.pop(session, None)


class ReleasedPrograms(_Book):
    """Sessions that end are released: no shadows."""

    def observe(self, view: View, fact: Fact) -> None:
        pass


class NeverReleased(_Book):
    """Nobody calls release, and there is no idle bound: a session that is gone stays an ACTING program."""

    def __init__(self) -> None:
        super().__init__()
        self._last_seen: dict[SessionId, tuple[ReplicaId | None, int]] = {}

    def observe(self, view: View, fact: Fact) -> None:
        match fact:
            case TurnDispatched() | TurnSettled() | SessionInterrupted() | ToolStarted():
                session = view.sessions[fact.session]
                if session.side_of is None:
                    self._last_seen[session.id] = (session.home, session.footprint_tokens)
                    self.drop(session.id)
            case SessionClosed():
                seen = self._last_seen.pop(fact.session, None)
                if seen is not None:
                    replica, tokens = seen
                    self.add(Shadow(fact.session, tokens, replica, fact.at, replica))


class PhantomReasoning(_Book):
    """A request that fails or is given up never takes its program back to ACTING."""

    def observe(self, view: View, fact: Fact) -> None:
        match fact:
            case TurnSettled(finished=False):
                session = view.sessions[fact.session]
                if session.side_of is None and turns_of(session.phase) == (fact.turn,):
                    self.add(Shadow(session.id, session.footprint_tokens, fact.replica, None, fact.replica))
            case TurnDispatched() | TurnSettled():
                self.drop(fact.session)
            case SessionClosed():
                self.drop(fact.session)
