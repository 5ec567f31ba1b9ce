"""The ledger of reservations: which session, and which turn beyond its session's admission, holds how many tokens of
which replica. The one place that knows the formula `free = capacity - sum(reservations)`.

An entry is immutable and is replaced as a whole, so that what is taken out is exactly what was put in; totals are sums
of integers over those entries, and `check()` compares them with a fresh sum. The ledger refuses nothing: growth and
forced placements may exceed a capacity, and whether an admission fits is asked before it is booked.
"""

from collections.abc import Iterator

from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.values import value


@value
class Reservation:
    """`tokens` of `replica`'s capacity."""

    replica: ReplicaId
    tokens: int


class Ledger:
    """Reservations by session (admissions) and by turn (extras: parallel turns of an admitted session)."""

    __slots__ = ("_admissions", "_extras", "_on_replica", "_reserved_tokens")

    def __init__(self) -> None:
        self._admissions: dict[SessionId, Reservation] = {}
        self._extras: dict[TurnId, Reservation] = {}
        self._on_replica: dict[ReplicaId, dict[SessionId, None]] = {}
        self._reserved_tokens: dict[ReplicaId, int] = {}

    def admission(self, session: SessionId) -> Reservation | None:
        """What the session holds by its admission."""
        return self._admissions.get(session)

    def extra(self, turn: TurnId) -> Reservation | None:
        """What the turn holds beside its session's admission."""
        return self._extras.get(turn)

    def reserved_tokens(self, replica: ReplicaId) -> int:
        """Sum of all reservations on the replica."""
        return self._reserved_tokens.get(replica, 0)

    def sessions_on(self, replica: ReplicaId) -> Iterator[SessionId]:
        """Sessions admitted on the replica, in the order of their admission."""
        return iter(self._on_replica.get(replica, ()))

    def session_count_on(self, replica: ReplicaId) -> int:
        """How many sessions are admitted on the replica."""
        return len(self._on_replica.get(replica, ()))

    def admit(self, session: SessionId, reservation: Reservation) -> None:
        """Book or change a session's admission."""
        old = self._admissions.get(session)
        if old is None:
            self._on_replica.setdefault(reservation.replica, {})[session] = None
        elif old.replica != reservation.replica:
            del self._on_replica[old.replica][session]
            self._on_replica.setdefault(reservation.replica, {})[session] = None
        self._swap(old, reservation)
        self._admissions[session] = reservation

    def release(self, session: SessionId) -> None:
        """Give a session's admission back. Nothing happens where it holds none."""
        old = self._admissions.pop(session, None)
        if old is not None:
            del self._on_replica[old.replica][session]
            self._swap(old, None)

    def book_extra(self, turn: TurnId, reservation: Reservation) -> None:
        """Book or change what a turn holds beside its session's admission."""
        self._swap(self._extras.get(turn), reservation)
        self._extras[turn] = reservation

    def release_extra(self, turn: TurnId) -> None:
        """Give a turn's extra back. Nothing happens where it holds none."""
        old = self._extras.pop(turn, None)
        if old is not None:
            self._swap(old, None)

    def is_empty(self) -> bool:
        """True when nothing is booked."""
        return not self._admissions and not self._extras

    def entries(self) -> tuple[tuple[str, Reservation], ...]:
        """All entries by id, admissions first: for snapshots and checks."""
        return (*self._admissions.items(), *self._extras.items())

    def check(self) -> None:
        """Assert that every total equals a fresh sum over the entries."""
        fresh: dict[ReplicaId, int] = {}
        for _, entry in self.entries():
            assert entry.tokens >= 0, entry
            fresh[entry.replica] = fresh.get(entry.replica, 0) + entry.tokens
        booked = {replica: tokens for replica, tokens in self._reserved_tokens.items() if tokens}
        assert {replica: tokens for replica, tokens in fresh.items() if tokens} == booked, (fresh, booked)
        for replica, sessions in self._on_replica.items():
            for session in sessions:
                assert self._admissions[session].replica == replica, (session, replica)
        assert sum(map(len, self._on_replica.values())) == len(self._admissions)

    def _swap(self, old: Reservation | None, new: Reservation | None) -> None:
        if old is not None:
            self._reserved_tokens[old.replica] -= old.tokens
        if new is not None:
            self._reserved_tokens[new.replica] = self._reserved_tokens.get(new.replica, 0) + new.tokens
