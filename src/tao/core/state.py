"""The live state: sessions, turns, replicas, the ledger, and the indexes over them. Also the `View` that policies read.

Only `enter` changes a phase, and it keeps every index in step: the waiting pool, the held turns in order of their
deadline, the idle sessions in order of theirs. Bounds that are the same for all need no heap: first in, first due.
`check` states what must always hold.
"""

from collections.abc import Iterable, Iterator, Sequence

from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ledger import Ledger
from tao.core.phases import BETWEEN_TURNS, Acting, Away, Closed, Phase, Running, Stopping, Waiting, turns_of
from tao.core.serving import Serving
from tao.core.session import Replica, ReplicaState, Session, Turn
from tao.core.settings import SchedulerSettings


class State:
    """All of the core's data. Implements `tao.core.ports.View`."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self.settings = settings
        self.replicas: dict[ReplicaId, Replica] = {}
        self.serving = Serving()
        self._removed = False  # whether one is to be forgotten
        self.sessions: dict[SessionId, Session] = {}
        self.turns: dict[TurnId, Turn] = {}
        self.ledger = Ledger()
        self.pool: dict[SessionId, None] = {}
        self.holding: dict[SessionId, float] = {}  # Waiting sessions, since when, oldest first
        self.held_for: dict[str, dict[SessionId, None]] = {}  # the same by the model they ask for
        self.idle: dict[SessionId, float] = {}  # Acting and Away sessions, last heard of, oldest first
        self.held_turns = 0
        self.planning = False
        self.weights_until: float | None = None  # weights are being updated, until then at the latest
        self.dispatching_since = 0.0  # when that ended last

    # --- the view ---------------------------------------------------------------------------------------------------

    @property
    def waiting_sessions(self) -> int:
        return len(self.holding)

    def up_replicas(self) -> Sequence[Replica]:
        return self.serving.up

    def eligible_replicas(self, session: Session) -> Sequence[Replica]:
        return self.serving.of(session.model)

    def free_tokens(self, replica: ReplicaId) -> int:
        return self.replicas[replica].capacity_tokens - self.ledger.reserved_tokens(replica)

    def shared_tokens(self, session: Session, replica: ReplicaId) -> int:
        return self.ledger.shared_tokens(replica, session.id, session.shared_prefix)

    def freed_tokens(self, replica: ReplicaId, sessions: Iterable[SessionId]) -> Iterator[int]:
        return self.ledger.freed_tokens(replica, sessions)

    def free_slots(self, replica: ReplicaId) -> int | None:
        slots = self.replicas[replica].slots
        return None if slots is None else slots - self.ledger.session_count_on(replica)

    def beside_tokens(self, session: Session) -> int:
        phase = session.phase
        if not isinstance(phase, Waiting) or len(phase.turns) == 1:
            return 0
        held = [self.turns[turn] for turn in phase.turns]
        led = next((turn.live_tokens for turn in held if turn.line == session.line), 0)
        return sum(turn.live_tokens for turn in held) - led

    def session_count_on(self, replica: ReplicaId) -> int:
        return self.ledger.session_count_on(replica)

    def admitted_on(self, replica: ReplicaId) -> Iterator[Session]:
        for session in list(self.ledger.sessions_on(replica)):
            yield self.sessions[session]

    def acting_on(self, replica: ReplicaId) -> Iterator[Session]:
        return (session for session in self.admitted_on(replica) if isinstance(session.phase, Acting))

    def returning_to(self, replica: ReplicaId) -> Sequence[Session]:
        """Held sessions that have their admission there again as soon as weights are updated."""
        held = map(self.sessions.__getitem__, self.holding)
        return [s for s in held if isinstance(s.phase, Waiting) and s.phase.returns_to == replica]

    def acting_tokens(self, replica: ReplicaId) -> int:
        return sum(self.freed_tokens(replica, (session.id for session in self.acting_on(replica))))

    def waited_seconds(self, session: Session, at: float) -> float:
        since = self.holding.get(session.id)
        return 0.0 if since is None else at - max(since, self.dispatching_since)

    # --- changes ----------------------------------------------------------------------------------------------------

    def enter(self, session: Session, phase: Phase, at: float) -> None:
        """Replace the session's phase and keep the indexes in step."""
        old, session.phase = session.phase, phase
        session.epoch += 1
        if isinstance(old, Waiting):
            self.held_turns -= len(old.turns)
            if not isinstance(phase, Waiting):
                del self.holding[session.id]
                self._unlist(session)
        elif isinstance(old, BETWEEN_TURNS) and not isinstance(phase, BETWEEN_TURNS):
            del self.idle[session.id]
        in_pool = False
        if isinstance(phase, Waiting):
            self.held_turns += len(phase.turns)
            if session.id not in self.holding:
                self.holding[session.id] = at
                self.held_for.setdefault(session.model, {})[session.id] = None
            in_pool = True
        elif isinstance(phase, BETWEEN_TURNS):
            self.idle.setdefault(session.id, at)
            in_pool = isinstance(phase, Acting) and phase.home is None
        if in_pool:
            self.pool.setdefault(session.id)
        else:
            self.pool.pop(session.id, None)

    def ask_for(self, session: Session, model: str) -> None:
        """The session asks for this model from now on."""
        if session.id in self.holding:
            self._unlist(session)
            self.held_for.setdefault(model, {})[session.id] = None
        session.model = model

    def _unlist(self, session: Session) -> None:
        listed = self.held_for[session.model]
        del listed[session.id]
        if not listed:
            del self.held_for[session.model]

    def heard_of(self, session: Session, at: float) -> None:
        """Start the idle bound of an acting session afresh."""
        if session.id in self.idle:
            del self.idle[session.id]
            self.idle[session.id] = at

    def note_replicas(self, at: float) -> None:
        """Remember which replicas take sessions; to be called whenever one changes its state, capacity or models."""
        self.serving.note(self.replicas.values(), at, held_back=self.weights_until is not None)
        self._removed = any(replica.removed for replica in self.replicas.values())

    def forget_removed(self) -> None:
        """Drop the records of removed replicas that no turn and no session needs any more."""
        if not self._removed:
            return
        gone = [
            replica.id
            for replica in self.replicas.values()
            if replica.removed and not replica.turns_in_flight and not self.session_count_on(replica.id)
        ]
        for replica_id in gone:
            del self.replicas[replica_id]
            self.ledger.forget(replica_id)
        self._removed = any(replica.removed for replica in self.replicas.values())

    def pinned_or(self, session: Session, replica: ReplicaId) -> ReplicaId:
        """The replica that the session is pinned to where that is up, else the one given."""
        pinned = session.pinned
        if pinned is None or all(up.id != pinned for up in self.serving.up):
            return replica
        return pinned

    def most_room(self, model: str, but: ReplicaId | None = None) -> Replica | None:
        """The replica with most free tokens of those that serve the model, other than `but`; ties: the first that joined."""
        up = [replica for replica in self.serving.of(model) if replica.id != but]
        return max(up, key=lambda replica: self.free_tokens(replica.id), default=None)

    # --- what must always hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the mutual consistency of every collection."""
        self.ledger.check()
        in_phases: dict[TurnId, SessionId] = {}
        for session in self.sessions.values():
            self._check_session(session)
            assert isinstance(session.phase, Acting | Away) or turns_of(session.phase), session
            in_phases |= dict.fromkeys(turns_of(session.phase), session.id)
        assert in_phases == {turn.id: turn.session for turn in self.turns.values()}
        assert self.held_turns == sum(turn.replica is None for turn in self.turns.values())
        assert set(self.holding) == {s.id for s in self.sessions.values() if isinstance(s.phase, Waiting)}
        assert list(self.holding.values()) == sorted(self.holding.values())
        listed = {session: model for model, held in self.held_for.items() for session in held}
        assert listed == {session: self.sessions[session].model for session in self.holding}
        assert set(self.idle) == {s.id for s in self.sessions.values() if isinstance(s.phase, Acting | Away)}
        assert list(self.idle.values()) == sorted(self.idle.values())
        assert len(self.sessions) <= self.settings.sessions_max
        assert self.held_turns <= self.settings.held_turns_max
        self._check_replicas()

    def _check_session(self, session: Session) -> None:
        phase, admission = session.phase, self.ledger.admission(session.id)
        assert not isinstance(phase, Closed), session
        assert (session.id in self.pool) == (session.home is None and not isinstance(phase, Away)), session
        assert (admission.replica if admission else None) == session.home, session
        led = [t.live_tokens for t in map(self.turns.__getitem__, turns_of(phase)) if t.leads]
        assert session.live_tokens == max(session.footprint_tokens, *led, 0), session
        for evidence in session.evidence.values():
            assert 0 <= evidence.tokens <= session.footprint_tokens, session
        match phase:
            case Waiting(turns=turns, returns_to=returns_to):
                assert all(self.turns[turn].replica is None for turn in turns), session
                if returns_to is not None:
                    assert self.weights_until is not None, session
                    assert self.replicas[returns_to].state is ReplicaState.UP, session
            case Running(turns=turns):
                assert all(self.turns[turn].replica is not None for turn in turns), session
                assert not all(self.turns[turn].stopping for turn in turns), session
            case Stopping(turns=turns):
                assert all(self.turns[turn].stopping for turn in turns), session
            case Acting(home=home):
                assert home is None or self.replicas[home].state is ReplicaState.UP, session

    def _check_replicas(self) -> None:
        in_flight: dict[ReplicaId, int] = {}
        leading: dict[SessionId, int] = {}
        for turn in self.turns.values():
            if turn.replica is not None:
                in_flight[turn.replica] = in_flight.get(turn.replica, 0) + 1
                extra = self.ledger.extra(turn.id)
                assert (extra is None) == turn.leads, turn
                assert extra is None or extra.replica == turn.replica, turn
                leading[turn.session] = leading.get(turn.session, 0) + turn.leads
        assert all(count <= 1 for count in leading.values()), leading
        extras = sum(turn.replica is not None and not turn.leads for turn in self.turns.values())
        assert len(self.ledger.entries()) == extras + sum(s.home is not None for s in self.sessions.values())
        for replica in self.replicas.values():
            assert replica.turns_in_flight == in_flight.pop(replica.id, 0), replica
        assert not in_flight, in_flight
        up = tuple(r for r in self.replicas.values() if r.state is ReplicaState.UP)
        assert self.serving.up == (() if self.weights_until is not None else up)
        assert self._removed == any(replica.removed for replica in self.replicas.values())
