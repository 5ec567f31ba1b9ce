"""The ledger: what is taken out is what was put in, and `check` finds a total that is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.core.event_values import PrefixNode
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ledger import Ledger, Reservation

A, B = ReplicaId("a"), ReplicaId("b")
S, T = SessionId("s"), TurnId("t")


def test_an_admission_is_replaced_as_a_whole() -> None:
    ledger = Ledger()
    ledger.admit(S, Reservation(A, 100))
    ledger.admit(S, Reservation(A, 130))
    assert (ledger.reserved_tokens(A), ledger.session_count_on(A)) == (130, 1)
    ledger.admit(S, Reservation(B, 90))
    assert (ledger.reserved_tokens(A), ledger.reserved_tokens(B)) == (0, 90)
    assert (list(ledger.sessions_on(A)), list(ledger.sessions_on(B))) == ([], [S])
    ledger.release(S)
    assert ledger.is_empty()
    ledger.check()


def test_extras_count_beside_admissions() -> None:
    ledger = Ledger()
    ledger.admit(S, Reservation(A, 100))
    ledger.book_extra(T, Reservation(A, 40))
    ledger.book_extra(T, Reservation(B, 50))
    assert (ledger.reserved_tokens(A), ledger.reserved_tokens(B)) == (100, 50)
    assert ledger.extra(T) == Reservation(B, 50)
    assert ledger.entries() == (("s", Reservation(A, 100)), ("t", Reservation(B, 50)))
    assert not ledger.is_empty()
    ledger.release_extra(T)
    ledger.release_extra(T)
    assert ledger.reserved_tokens(B) == 0


TOOLS, SYSTEM, OTHER = PrefixNode("tools", 40), PrefixNode("tools, system", 20), PrefixNode("other", 30)


def test_what_several_sessions_begin_with_is_counted_once_until_the_last_of_them_is_gone() -> None:
    ledger = Ledger()
    p, q, r = map(SessionId, "pqr")
    ledger.admit(p, Reservation(A, 100, (TOOLS, SYSTEM)))
    assert ledger.reserved_tokens(A) == 100
    assert ledger.shared_tokens(A, q, (TOOLS, SYSTEM)) == 60
    assert ledger.shared_tokens(A, p, (TOOLS, SYSTEM)) == 0, "nobody else holds it"
    assert ledger.shared_tokens(B, q, (TOOLS, SYSTEM)) == 0, "another replica computes it anew"
    ledger.admit(q, Reservation(A, 90, (TOOLS, SYSTEM)))
    ledger.admit(r, Reservation(A, 80, (TOOLS, OTHER)))
    assert ledger.reserved_tokens(A) == 100 + 90 - 60 + 80 - 40
    assert ledger.shared_tokens(A, r, (TOOLS, OTHER)) == 40
    ledger.admit(p, Reservation(B, 100, (TOOLS, SYSTEM)))
    assert (ledger.reserved_tokens(A), ledger.reserved_tokens(B)) == (90 + 80 - 40, 100)
    ledger.release(q)
    assert ledger.reserved_tokens(A) == 80
    ledger.release(r)
    assert ledger.reserved_tokens(A) == 0
    ledger.check()


def test_a_piece_of_another_length_is_another_piece() -> None:
    ledger = Ledger()
    ledger.admit(S, Reservation(A, 100, (TOOLS,)))
    ledger.admit(SessionId("r"), Reservation(A, 100, (TOOLS._replace(tokens=41),)))
    assert ledger.reserved_tokens(A) == 200


def test_releasing_what_is_not_held_does_nothing() -> None:
    ledger = Ledger()
    ledger.release(S)
    ledger.release_extra(T)
    assert ledger.is_empty()
    assert ledger.admission(S) is None
    assert ledger.reserved_tokens(A) == ledger.session_count_on(A) == 0


@pytest.mark.parametrize("defect", ["total", "list"])
def test_check_finds_a_collection_that_disagrees(defect: str) -> None:
    ledger = Ledger()
    ledger.admit(S, Reservation(A, 100))
    if defect == "total":
        ledger._reserved_tokens[A] += 1
    else:
        ledger._on_replica[A][SessionId("r")] = None
    with pytest.raises((AssertionError, KeyError)):
        ledger.check()


def test_what_only_leaving_sessions_share_is_freed_by_the_last_of_them() -> None:
    ledger = Ledger()
    p, q, r = map(SessionId, "pqr")
    ledger.admit(p, Reservation(A, 100, (TOOLS, SYSTEM)))
    ledger.admit(q, Reservation(A, 90, (TOOLS, SYSTEM)))
    ledger.admit(r, Reservation(A, 80, (TOOLS,)))
    assert [list(ledger.freed_tokens(A, [name])) for name in (p, q, r)] == [[40], [30], [40]]
    assert list(ledger.freed_tokens(A, [q, p])) == [30, 60], "nobody else holds SYSTEM"
    assert list(ledger.freed_tokens(A, [p, q, r])) == [40, 50, 80]


NAMES = st.sampled_from("pqrs")
PLACES = st.sampled_from("abc")
MOVES = st.tuples(
    st.sampled_from(["admit", "release", "extra", "release-extra"]),
    NAMES,
    PLACES,
    st.integers(90, 10**9),
    st.sampled_from([(), (TOOLS,), (TOOLS, SYSTEM), (TOOLS, OTHER), (OTHER,)]),
)
Pieces = tuple[PrefixNode, ...]


@given(st.lists(MOVES, max_size=40))
def test_totals_equal_a_plain_sum_after_any_moves(moves: list[tuple[str, str, str, int, Pieces]]) -> None:
    ledger = Ledger()
    held: dict[tuple[str, str], tuple[str, int, Pieces]] = {}
    for move, name, place, tokens, shared in moves:
        kind = "extra" if "extra" in move else "admission"
        if move == "admit":
            before, costs = (
                ledger.reserved_tokens(ReplicaId(place)),
                tokens - ledger.shared_tokens(ReplicaId(place), SessionId(name), shared),
            )
            is_new = ledger.admission(SessionId(name)) is None
            ledger.admit(SessionId(name), Reservation(ReplicaId(place), tokens, shared))
            assert not is_new or ledger.reserved_tokens(ReplicaId(place)) == before + costs
        elif move == "extra":
            ledger.book_extra(TurnId(name), Reservation(ReplicaId(place), tokens))
        elif move == "release":
            ledger.release(SessionId(name))
        else:
            ledger.release_extra(TurnId(name))
        if move in ("admit", "extra"):
            held[kind, name] = (place, tokens, shared if move == "admit" else ())
        else:
            held.pop((kind, name), None)
        ledger.check()
        for replica in "abc":
            here = [(tokens, shared) for on, tokens, shared in held.values() if on == replica]
            own = sum(tokens - sum(piece.tokens for piece in shared) for tokens, shared in here)
            pieces = {piece for _, shared in here for piece in shared}
            total = own + sum(piece.tokens for piece in pieces)
            assert ledger.reserved_tokens(ReplicaId(replica)) == total
            admitted = [
                name for (kind, name), (on, _, _) in held.items() if on == replica and kind == "admission"
            ]
            assert sorted(ledger.sessions_on(ReplicaId(replica))) == sorted(admitted)
            extras = sum(
                tokens for (kind, _), (on, tokens, _) in held.items() if on == replica and kind == "extra"
            )
            assert sum(ledger.freed_tokens(ReplicaId(replica), map(SessionId, admitted))) == total - extras
    assert ledger.is_empty() == (not held)
