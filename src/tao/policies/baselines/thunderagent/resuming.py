"""Which paused programs come back at a tick, and where.

Programs are walked through by group and then smallest first; one is taken up while the sum of what was taken fits the
room of all replicas together, a larger one is passed over. Those taken up are then placed largest first, each on the
replica with most room (worst fit, although the source calls it BFD).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tao.core.facts import Fact, SessionClosed, SessionInterrupted, ToolStarted, TurnDispatched, TurnHeld
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Session
from tao.policies.baselines.thunderagent.programs import BUFFER_TOKENS, Group, Program


@dataclass(frozen=True, slots=True)
class Paused:
    """A paused program with what its turn depends on. `sort_tokens`: its size in the order of the walk."""

    program: Program
    group: Group
    sort_tokens: int
    origin: ReplicaId | None
    waited_seconds: float


class Targets(Protocol):
    """Where a paused program may come back."""

    def of(self, paused: Paused, replicas: Sequence[ReplicaId]) -> Sequence[ReplicaId]:
        """Those of the replicas that it may use, in their order."""


@dataclass(frozen=True, slots=True)
class AnyReplica:
    """The source's rule: where it came from does not matter."""

    def of(self, paused: Paused, replicas: Sequence[ReplicaId]) -> Sequence[ReplicaId]:  # noqa: ARG002
        return replicas


@dataclass(frozen=True, slots=True)
class OriginFor:
    """Only where it was paused, until its request has waited `wait_seconds_max`; a new program may go anywhere.

    A program whose origin takes nothing at present (full, or not up) waits for it.
    """

    wait_seconds_max: float

    def of(self, paused: Paused, replicas: Sequence[ReplicaId]) -> Sequence[ReplicaId]:
        if paused.origin is None or paused.waited_seconds >= self.wait_seconds_max:
            return replicas
        return [paused.origin] if paused.origin in replicas else []


class PauseSizes(Protocol):
    """By which size paused programs are ordered."""

    def of(self, session: Session) -> int:
        """Tokens."""

    def observe(self, view: View, fact: Fact) -> None:
        """Sessions enter the waiting pool."""


class PresentSizes:
    """The size that they have now."""

    def of(self, session: Session) -> int:
        return session.live_tokens

    def observe(self, view: View, fact: Fact) -> None:
        pass


class SizesWhenPaused:
    """The size that they had when they were paused, however long the request is that came since (as in the source)."""

    def __init__(self) -> None:
        self._tokens: dict[SessionId, int] = {}

    def of(self, session: Session) -> int:
        return self._tokens.get(session.id, session.live_tokens)

    def observe(self, view: View, fact: Fact) -> None:
        match fact:
            case TurnHeld() | SessionInterrupted() | ToolStarted():
                if fact.session in view.pool:
                    self._tokens.setdefault(fact.session, view.sessions[fact.session].live_tokens)
            case TurnDispatched() | SessionClosed():
                self._tokens.pop(fact.session, None)


def resume(
    paused: Iterable[Paused], room_tokens: Mapping[ReplicaId, int], targets: Targets
) -> list[tuple[Program, ReplicaId]]:
    """The programs to resume and where, in the order of placement. `room_tokens`: `rem'` of the replicas that are up."""
    room = {replica: tokens for replica, tokens in room_tokens.items() if tokens > BUFFER_TOKENS}
    order = sorted(paused, key=lambda p: (p.group, p.sort_tokens, p.program.id))
    taken = _take_up(order, room, targets)
    placed: list[tuple[Program, ReplicaId]] = []
    for one in sorted(taken, key=lambda p: (-p.program.tokens, p.program.id)):
        possible = targets.of(one, list(room))
        if not possible:
            continue
        roomiest = max(possible, key=lambda replica: room[replica])
        if one.program.need_tokens > room[roomiest]:
            continue
        placed.append((one.program, roomiest))
        room[roomiest] -= one.program.need_tokens
        if room[roomiest] <= BUFFER_TOKENS:
            del room[roomiest]
    return placed


def _take_up(order: Sequence[Paused], room: Mapping[ReplicaId, int], targets: Targets) -> list[Paused]:
    """The walk. A program with one possible replica must also fit what is left of that one."""
    left = dict(room)
    left_in_all = sum(room.values())
    taken = []
    for one in order:
        need_tokens = one.program.need_tokens
        possible = targets.of(one, list(room))
        only = possible[0] if len(possible) == 1 else None
        if not possible or need_tokens > left_in_all or (only is not None and need_tokens > left[only]):
            continue
        taken.append(one)
        left_in_all -= need_tokens
        if only is not None:
            left[only] -= need_tokens
    return taken
