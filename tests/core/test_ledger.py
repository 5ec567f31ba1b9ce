"""The ledger: what is taken out is what was put in, and `check` finds a total that is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


NAMES = st.sampled_from("pqrs")
PLACES = st.sampled_from("abc")
MOVES = st.tuples(
    st.sampled_from(["admit", "release", "extra", "release-extra"]), NAMES, PLACES, st.integers(0, 10**9)
)


@given(st.lists(MOVES, max_size=40))
def test_totals_equal_a_plain_sum_after_any_moves(moves: list[tuple[str, str, str, int]]) -> None:
    ledger = Ledger()
    held: dict[tuple[str, str], tuple[str, int]] = {}
    for move, name, place, tokens in moves:
        kind = "extra" if "extra" in move else "admission"
        if move == "admit":
            ledger.admit(SessionId(name), Reservation(ReplicaId(place), tokens))
        elif move == "extra":
            ledger.book_extra(TurnId(name), Reservation(ReplicaId(place), tokens))
        elif move == "release":
            ledger.release(SessionId(name))
        else:
            ledger.release_extra(TurnId(name))
        if move in ("admit", "extra"):
            held[kind, name] = (place, tokens)
        else:
            held.pop((kind, name), None)
        ledger.check()
        for replica in "abc":
            total = sum(tokens for on, tokens in held.values() if on == replica)
            assert ledger.reserved_tokens(ReplicaId(replica)) == total
            admitted = [
                name for (kind, name), (on, _) in held.items() if on == replica and kind == "admission"
            ]
            assert sorted(ledger.sessions_on(ReplicaId(replica))) == sorted(admitted)
    assert ledger.is_empty() == (not held)
