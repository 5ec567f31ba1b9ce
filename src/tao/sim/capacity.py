"""A checker's own books of capacity: no unforced admission exceeds what its replica holds.

Whether a session keeps its admission while its tool runs is a policy's affair, and no command says that one was given
back. So the books count what is certain at an admission (turns on the engine), and keep open what may be held by sessions
whose tools run. When such a session turns out to have held its admission all the time, because its next turn goes to the
same replica without a new one or because it is interrupted, the admissions made meanwhile are checked again with it.
Tokens are counted as far as events tell them, which is never more than what an admission has to cover; where a session was
admitted for less than its context (part of it is shared with others), it is counted for as much less from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tao.core.commands import UNGATED, AdmitSession, CloseSession, Command, DispatchTurn, InterruptSession
from tao.core.events import (
    CapacityChanged,
    Event,
    ReplicaJoined,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnStopped,
)
from tao.core.ids import ReplicaId, SessionId, TurnId

VIOLATIONS_KEPT = 10


@dataclass(slots=True)
class _Acting:
    """A session whose tool runs and that may hold its admission; `admissions_before`: made on the replica till then."""

    replica: ReplicaId
    tokens: int
    admissions_before: int


@dataclass(slots=True)
class _Sent:
    """A turn on an engine."""

    session: SessionId
    replica: ReplicaId
    tokens: int


@dataclass(slots=True)
class _Replica:
    """`slack_tokens`: of the gated admissions since number `first`, what each left free as far as is certain."""

    capacity_tokens: int
    certain_tokens: int = 0
    first: int = 0
    slack_tokens: list[int] = field(default_factory=list)

    @property
    def admissions(self) -> int:
        return self.first + len(self.slack_tokens)


class AdmissionsFit:
    """No unforced admission exceeds capacity."""

    watches = frozenset({TurnArrived, TurnFinished, TurnFailed, TurnStopped, ReplicaJoined, CapacityChanged})

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._replicas: dict[ReplicaId, _Replica] = {}
        self._prompts: dict[TurnId, int] = {}
        self._sent: dict[TurnId, _Sent] = {}
        self._in_flight: dict[SessionId, int] = {}
        self._acting: dict[SessionId, _Acting] = {}
        self._context_tokens: dict[SessionId, int] = {}
        self._discount_tokens: dict[SessionId, int] = {}

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        match event:
            case TurnArrived():
                self._prompts.setdefault(event.turn, event.prompt_tokens)
                self._context_tokens[event.session] = event.prompt_tokens
                if not commands:  # held: whatever the session had is given back
                    self._acting.pop(event.session, None)
            case TurnFinished():
                self._ended(event.turn, event)
            case TurnFailed() | TurnStopped():
                self._ended(event.turn, None)
            case ReplicaJoined() | CapacityChanged():
                known = self._replicas.setdefault(event.replica, _Replica(event.capacity_tokens))
                known.capacity_tokens = event.capacity_tokens
        for command in commands:
            match command:
                case DispatchTurn():
                    self._dispatched(event.at, command)
                case AdmitSession():
                    self._admitted(event.at, command)
                case InterruptSession():
                    self._proved(event.at, command.session, command.replica)
                case CloseSession():
                    self._closed(command.session)

    def end(self, at: float) -> None:
        """Everything was checked when it happened."""

    def _closed(self, session: SessionId) -> None:
        self._acting.pop(session, None)
        self._context_tokens.pop(session, None)
        self._discount_tokens.pop(session, None)

    def _admitted(self, at: float, command: AdmitSession) -> None:
        self._acting.pop(command.session, None)
        discount_tokens = self._context_tokens.get(command.session, 0) - command.weight_tokens
        self._discount_tokens[command.session] = max(0, discount_tokens)
        replica = self._replicas[command.replica]
        if command.reason not in UNGATED:
            slack_tokens = replica.capacity_tokens - replica.certain_tokens - command.weight_tokens
            replica.slack_tokens.append(slack_tokens)
            if slack_tokens < 0:
                self._say(at, command.replica, -slack_tokens, f"admitting {command.session}")
        if not self._in_flight.get(command.session):
            self._act(command.session, command.replica, command.weight_tokens)

    def _dispatched(self, at: float, command: DispatchTurn) -> None:
        self._proved(at, command.session, command.replica)
        tokens = max(0, self._prompts.get(command.turn, 0) - self._discount_tokens.get(command.session, 0))
        self._sent[command.turn] = _Sent(command.session, command.replica, tokens)
        self._in_flight[command.session] = self._in_flight.get(command.session, 0) + 1
        self._replicas[command.replica].certain_tokens += tokens

    def _ended(self, turn: TurnId, finished: TurnFinished | None) -> None:
        sent = self._sent.pop(turn, None)
        if sent is None:
            return
        self._replicas[sent.replica].certain_tokens -= sent.tokens
        left = self._in_flight.pop(sent.session) - 1
        if left:
            self._in_flight[sent.session] = left
        if finished is not None:
            del self._prompts[turn]
            if not left:
                self._act(sent.session, sent.replica, self._tokens_after(sent, finished))

    def _tokens_after(self, sent: _Sent, finished: TurnFinished) -> int:
        if finished.usage is None:
            return sent.tokens
        context_tokens = finished.usage.prompt_tokens + finished.usage.output_tokens
        self._context_tokens[sent.session] = context_tokens
        return max(0, context_tokens - self._discount_tokens.get(sent.session, 0))

    def _act(self, session: SessionId, replica: ReplicaId, tokens: int) -> None:
        self._acting[session] = _Acting(replica, tokens, self._replicas[replica].admissions)

    def _proved(self, at: float, session: SessionId, replica_id: ReplicaId) -> None:
        """The session has held its admission since its tool began: what was admitted meanwhile must fit beside it."""
        acting = self._acting.pop(session, None)
        if acting is None or acting.replica != replica_id:
            return
        replica = self._replicas[replica_id]
        slack_tokens = replica.slack_tokens
        for index in range(max(0, acting.admissions_before - replica.first), len(slack_tokens)):
            slack_tokens[index] -= acting.tokens
            if slack_tokens[index] < 0:
                self._say(at, replica_id, -slack_tokens[index], f"an admission beside {session}")
        self._forget_settled(replica_id, replica)

    def _forget_settled(self, replica_id: ReplicaId, replica: _Replica) -> None:
        """Drop admissions that no open question concerns any more, now and then."""
        if len(replica.slack_tokens) < 256:
            return
        open_since = min(
            (a.admissions_before for a in self._acting.values() if a.replica == replica_id),
            default=replica.admissions,
        )
        del replica.slack_tokens[: open_since - replica.first]
        replica.first = open_since

    def _say(self, at: float, replica: ReplicaId, tokens: int, what: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(f"at {at:.3f} s: {what} exceeds {replica} by {tokens} tokens")
