"""Live traffic as a trace: what a driver's events tell of each session becomes a session of `tao.traces.model`.

Counts and durations, never text: ids are digests, tools and commands keep their names where the anonymiser knows them.
A session is written when it is closed, or when more turns than `turns_max` are in memory; what returns after that is a
session of its own. Side turns and turns that failed are left out. It must not know HTTP or clocks; times are those of the
events.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tao.core.commands import CloseSession, Command, DispatchTurn, RefuseTurn
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    ToolBegan,
    ToolCall,
    ToolsMeasured,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnProgress,
    TurnStopped,
)
from tao.core.ids import SessionId, TurnId
from tao.record.livewaits import EndedTurn, trace_turn
from tao.traces.anonymise import hashed_id
from tao.traces.model import TOKENS_MAX, TraceSession, TraceTurn

TURNS_MAX = 100_000
SOURCES_MAX = 1_024
SOURCE = "live"


class Sink(Protocol):
    """Takes complete sessions."""

    def write(self, session: TraceSession) -> None: ...


@dataclass(frozen=True, slots=True)
class _Head:
    """What a prompt begins with before the conversation. `share`: of the whole prompt."""

    digest: bytes
    share: float


@dataclass(slots=True)
class _Open:
    """A session. `last`: the turn whose wait is not over; `returned_at`: when the session was back after it."""

    trace_id: str
    started_at: float
    parent: tuple[str, int] | None
    turns: list[TraceTurn] = field(default_factory=list)
    last: EndedTurn | None = None
    returned_at: float | None = None
    in_flight: int = 0
    source: str = SOURCE
    head_tokens: int | None = None
    estimated: bool = False
    is_written: bool = False


@dataclass(slots=True)
class _InFlight:
    """A turn that has not ended."""

    session: _Open
    arrived_at: float
    prompt_tokens: int
    kind: TurnKind
    head: _Head | None
    dispatched_at: float | None = None
    first_token_at: float | None = None
    output_tokens: int = 0


class TraceRecorder:
    """An observer of a driver. At most `turns_max` turns of sessions that have not been written are in memory."""

    def __init__(self, sink: Sink, turns_max: int = TURNS_MAX) -> None:
        self._sink = sink
        self._turns_max = turns_max
        self._in_flight: dict[TurnId, _InFlight] = {}
        self._open: OrderedDict[SessionId, _Open] = OrderedDict()
        self._next_head: tuple[TurnId, _Head] | None = None
        self._head_tokens: OrderedDict[str, int] = OrderedDict()
        self._turns = 0
        self._began_at: float | None = None
        self.sessions = 0
        self.side_turns = 0

    def prompt(self, turn: TurnId, head_digest: bytes, head_share: float) -> None:
        """What the prompt of the turn begins with that is the next to arrive: tools and system prompt, 0 to 1 of it."""
        self._next_head = (turn, _Head(head_digest, head_share))

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Take note of an event and its commands. Raises what the sink raises."""
        self._event(event)
        for command in commands:
            match command:
                case DispatchTurn(turn=turn) if turn in self._in_flight:
                    self._in_flight[turn].dispatched_at = event.at
                case RefuseTurn(turn=turn):
                    self._gone(turn)
                case CloseSession(session=session):
                    self._write(session)

    def close(self) -> None:
        """Write the sessions that are still open, oldest first."""
        for session in list(self._open):
            self._write(session)

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        match event:
            case TurnArrived():
                self._arrived(event)
            case FirstToken(at=at, turn=turn) if turn in self._in_flight:
                self._in_flight[turn].first_token_at = at
            case TurnProgress(turn=turn, output_tokens=output_tokens) if turn in self._in_flight:
                self._in_flight[turn].output_tokens = output_tokens
            case TurnFinished():
                self._finished(event)
            case TurnFailed(turn=turn, retryable=False) | TurnStopped(turn=turn):
                self._gone(turn)
            case ClientLeft(turn=turn) if (
                turn in self._in_flight and self._in_flight[turn].dispatched_at is None
            ):
                self._gone(turn)
            case ToolBegan(session=session, tool=tool):
                self._began(session, tool)
            case ToolsMeasured(session=session, durations=durations):
                known = self._waiting(session)
                if known is not None:
                    known.measured.extend(durations)

    def _arrived(self, event: TurnArrived) -> None:
        turn, head = self._next_head or (None, None)
        self._next_head = None
        if event.kind is TurnKind.SIDE:
            self.side_turns += 1
            return
        self._began_at = event.at if self._began_at is None else self._began_at
        known = self._open.get(event.session)
        if known is None:
            trace_id = hashed_id(SOURCE, event.session, repr(event.at))
            known = _Open(trace_id, event.at, self._parent(event))
            self._open[event.session] = known
        self._open.move_to_end(event.session)
        known.in_flight += 1
        if known.last is not None and known.returned_at is None:
            known.returned_at = event.at
        head = head if turn == event.turn else None
        self._in_flight[event.turn] = _InFlight(known, event.at, event.prompt_tokens, event.kind, head)

    def _parent(self, event: TurnArrived) -> tuple[str, int] | None:
        """The parent and its last turn, where one has ended."""
        parent = self._open.get(event.parent) if event.parent is not None else None
        if parent is None or parent.last is None:
            return None
        return parent.trace_id, len(parent.turns)

    def _finished(self, event: TurnFinished) -> None:
        turn = self._in_flight.pop(event.turn, None)
        if turn is None or turn.session.is_written:
            return
        session = turn.session
        session.in_flight -= 1
        self._settle(session)
        usage = event.usage
        prompt_tokens = min(turn.prompt_tokens if usage is None else usage.prompt_tokens, TOKENS_MAX)
        if session.last is None and turn.head is not None:
            self._note_head(session, turn.head, prompt_tokens)
        session.estimated = session.estimated or usage is None
        session.last = EndedTurn(
            at=event.at,
            started_at=turn.arrived_at if turn.dispatched_at is None else turn.dispatched_at,
            first_token_at=turn.first_token_at,
            prompt_tokens=prompt_tokens,
            output_tokens=min(turn.output_tokens if usage is None else usage.output_tokens, TOKENS_MAX),
            cached_tokens=None if usage is None else usage.cached_tokens,
            is_estimate=usage is None,
            prefix_reset=turn.kind is TurnKind.RESET and bool(session.turns),
            tools=list(event.tools),
        )
        session.returned_at = event.at if session.in_flight else None
        self._turns += 1
        while self._turns > self._turns_max:
            self._write(next(name for name, known in self._open.items() if known.last is not None))

    def _began(self, session: SessionId, tool: ToolCall) -> None:
        known = self._waiting(session)
        if known is not None:
            known.tools.append(tool)

    def _gone(self, turn: TurnId) -> None:
        """A turn that came to nothing: its client may send it again, and the session is away until it does."""
        gone = self._in_flight.pop(turn, None)
        if gone is None:
            return
        session = gone.session
        session.in_flight -= 1
        if not session.in_flight and session.last is not None and gone.arrived_at <= session.last.at:
            session.returned_at = None

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _waiting(self, session: SessionId) -> EndedTurn | None:
        """The session's last turn, where nothing has come after it."""
        known = self._open.get(session)
        return known.last if known is not None and known.returned_at is None else None

    def _note_head(self, session: _Open, head: _Head, prompt_tokens: int) -> None:
        """Sessions whose prompts begin alike are of one source and share as many tokens, whoever came first."""
        if head.share <= 0:
            return
        session.source = hashed_id(SOURCE, head.digest.hex())
        tokens = self._head_tokens.setdefault(session.source, round(prompt_tokens * min(head.share, 1.0)))
        self._head_tokens.move_to_end(session.source)
        if len(self._head_tokens) > SOURCES_MAX:
            self._head_tokens.popitem(last=False)
        session.head_tokens = min(tokens, prompt_tokens)

    @staticmethod
    def _settle(session: _Open) -> None:
        """What came after the last turn is known now."""
        if session.last is not None:
            session.turns.append(trace_turn(session.last, session.returned_at))

    def _write(self, name: SessionId) -> None:
        session = self._open.pop(name, None)
        if session is None:
            return
        session.is_written = True
        if session.last is None:
            return
        session.turns.append(trace_turn(session.last, None))
        self._turns -= len(session.turns)
        self.sessions += 1
        parent, parent_turn = session.parent or (None, None)
        self._sink.write(
            TraceSession(
                session_id=session.trace_id,
                source=session.source,
                agent=SOURCE,
                tokens="estimated" if session.estimated else "measured",
                start_offset_seconds=round(session.started_at - (self._began_at or 0.0), 3),
                parent=parent,
                parent_turn=parent_turn,
                system_tokens=session.head_tokens,
                turns=tuple(session.turns),
            )
        )
