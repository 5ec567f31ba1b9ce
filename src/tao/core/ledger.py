"""The ledger of reservations: which session, and which turn beyond its session's admission, holds how many tokens of
which replica. The one place that knows the formula `free = capacity - sum(reservations)`, what several share summed once.

An entry is immutable and is replaced as a whole, so that what is taken out is exactly what was put in; totals are sums
of integers over those entries, and `check()` compares them with a fresh sum. The ledger refuses nothing: growth and
forced placements may exceed a capacity, and whether an admission fits is asked before it is booked.

An engine keeps a prefix once, however many sessions begin with it. So a piece of a prompt that several admissions of a
replica name in `shared` is counted there once, and stays counted until the last of them is gone.
"""

from collections.abc import Iterable, Iterator

from tao.core.event_values import PrefixNode
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.values import value


@value
class Reservation:
    """`tokens` of `replica`'s capacity, of which those of the pieces `shared` are counted once for all who hold them."""

    replica: ReplicaId
    tokens: int
    shared: tuple[PrefixNode, ...] = ()


class Ledger:
    """Reservations by session (admissions) and by turn (extras: parallel turns of an admitted session)."""

    __slots__ = ("_admissions", "_extras", "_holders", "_on_replica", "_reserved_tokens")

    def __init__(self) -> None:
        self._admissions: dict[SessionId, Reservation] = {}
        self._extras: dict[TurnId, Reservation] = {}
        self._on_replica: dict[ReplicaId, dict[SessionId, None]] = {}
        self._holders: dict[ReplicaId, dict[PrefixNode, int]] = {}  # how many admissions name each piece
        self._reserved_tokens: dict[ReplicaId, int] = {}

    def admission(self, session: SessionId) -> Reservation | None:
        """What the session holds by its admission."""
        return self._admissions.get(session)

    def extra(self, turn: TurnId) -> Reservation | None:
        """What the turn holds beside its session's admission."""
        return self._extras.get(turn)

    def reserved_tokens(self, replica: ReplicaId) -> int:
        """Sum of all reservations on the replica, what several share counted once."""
        return self._reserved_tokens.get(replica, 0)

    def shared_tokens(self, replica: ReplicaId, session: SessionId, pieces: tuple[PrefixNode, ...]) -> int:
        """How many tokens of `pieces` sessions other than this one hold on the replica: an admission costs as much less."""
        holders = self._holders.get(replica)
        if not holders or not pieces:
            return 0
        held = self._admissions.get(session)
        own = held.shared if held is not None and held.replica == replica else ()
        return sum(piece.tokens for piece in pieces if holders.get(piece, 0) > (piece in own))

    def added_tokens(self, session: SessionId, reservation: Reservation) -> int:
        """What this admission of the session would add to the replica's sum, where it holds none there yet."""
        shared_tokens = self.shared_tokens(reservation.replica, session, reservation.shared)
        return reservation.tokens - shared_tokens

    def freed_tokens(self, replica: ReplicaId, sessions: Iterable[SessionId]) -> Iterator[int]:
        """What would be free again by each of these admissions of the replica, given back one after the other: what several
        share with the last of them, if nobody else holds it.
        """
        staying: dict[PrefixNode, int] = {}
        for session in sessions:
            held = self._admissions[session]
            tokens = held.tokens
            for piece in held.shared:
                staying[piece] = staying.get(piece, self._holders[replica][piece]) - 1
                tokens -= piece.tokens if staying[piece] else 0
            yield tokens

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

    def forget(self, replica: ReplicaId) -> None:
        """A replica on which nothing is booked is gone."""
        for by_replica in (self._on_replica, self._holders, self._reserved_tokens):
            by_replica.pop(replica, None)

    def is_empty(self) -> bool:
        """True when nothing is booked."""
        return not self._admissions and not self._extras

    def entries(self) -> tuple[tuple[str, Reservation], ...]:
        """All entries by id, admissions first: for snapshots and checks."""
        return (*self._admissions.items(), *self._extras.items())

    def check(self) -> None:
        """Assert that every total equals a fresh sum over the entries."""
        fresh: dict[ReplicaId, int] = {}
        seen: set[tuple[ReplicaId, PrefixNode]] = set()
        for _, entry in self.entries():
            assert entry.tokens >= sum(piece.tokens for piece in entry.shared), entry
            pieces = [(entry.replica, piece) for piece in entry.shared]
            again_tokens = sum(piece.tokens for replica, piece in pieces if (replica, piece) in seen)
            seen.update(pieces)
            fresh[entry.replica] = fresh.get(entry.replica, 0) + entry.tokens - again_tokens
        booked = {replica: tokens for replica, tokens in self._reserved_tokens.items() if tokens}
        assert {replica: tokens for replica, tokens in fresh.items() if tokens} == booked, (fresh, booked)
        for replica, sessions in self._on_replica.items():
            for session in sessions:
                assert self._admissions[session].replica == replica, (session, replica)
        assert sum(map(len, self._on_replica.values())) == len(self._admissions)

    def _swap(self, old: Reservation | None, new: Reservation | None) -> None:
        if old is not None:
            self._reserved_tokens[old.replica] -= old.tokens - (self._part(old) if old.shared else 0)
        if new is not None:
            tokens = new.tokens - (self._join(new) if new.shared else 0)
            self._reserved_tokens[new.replica] = self._reserved_tokens.get(new.replica, 0) + tokens

    def _join(self, entry: Reservation) -> int:
        """Count the entry among the holders of its pieces; the tokens of those that others hold already."""
        holders = self._holders.setdefault(entry.replica, {})
        held_tokens = 0
        for piece in entry.shared:
            others = holders.get(piece, 0)
            holders[piece] = others + 1
            held_tokens += piece.tokens if others else 0
        return held_tokens

    def _part(self, entry: Reservation) -> int:
        """Count the entry out again; the tokens of the pieces that others still hold."""
        holders = self._holders[entry.replica]
        held_tokens = 0
        for piece in entry.shared:
            others = holders.pop(piece) - 1
            if others:
                holders[piece] = others
                held_tokens += piece.tokens
        return held_tokens
