"""A problem as the JSON file that `tao plan` reads, and that drivers write to record a decision.

The only file here that speaks of sessions and replicas, because the people who read and write such files do. Its
checks name the session and the field in those words. One readiness and one footprint for each session; credit for
each replica where there is any.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from tao.planning.answer import Answer
from tao.planning.problem import VALUE_MAX, Item, Knapsack, Problem, ProblemError, SparseValues, Triple

SNAPSHOT_BYTES_MAX = 1 << 26
"""Largest file that is read: 64 MiB."""

Count = Annotated[int, msgspec.Meta(ge=0, le=VALUE_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Id = Annotated[str, msgspec.Meta(min_length=1)]


class SnapshotError(ValueError):
    """Bytes that are no snapshot; the message says what is wrong and where."""


class _Replica(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: Id
    capacity_tokens: Count
    slots: Count | None = None


class _Session(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: Id
    weight_tokens: Count
    footprint_tokens: Count
    ready: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    credit: dict[str, Count] = {}
    eligible: tuple[str, ...] | None = None
    home: str | None = None
    waited_seconds: Seconds = 0.0


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    replicas: list[_Replica]
    sessions: list[_Session]
    wait_seconds_max: Seconds | None = None


def read_snapshot(data: bytes) -> Problem:
    """Parse and check a snapshot, or raise `SnapshotError`.

    `{"replicas": [{"id", "capacity_tokens", "slots"?}], "sessions": [{"id", "weight_tokens", "footprint_tokens",
    "ready"?, "credit"?, "eligible"?, "home"?, "waited_seconds"?}], "wait_seconds_max"?}`; `eligible` is all replicas
    where it is left out. Integers in 0..2**40 - 1.
    """
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise SnapshotError(
            f"the snapshot has {len(data)} bytes, more than the limit of {SNAPSHOT_BYTES_MAX}"
        )
    try:
        snapshot = msgspec.json.decode(data, type=_Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from None
    _check_unique((replica.id for replica in snapshot.replicas), "replica")
    _check_unique((session.id for session in snapshot.sessions), "session")
    replicas = tuple(replica.id for replica in snapshot.replicas)
    try:
        return Problem(
            tuple(Knapsack(r.id, r.capacity_tokens, r.slots) for r in snapshot.replicas),
            tuple(_item(session, replicas) for session in snapshot.sessions),
            snapshot.wait_seconds_max,
        )
    except ProblemError as error:
        raise SnapshotError(str(error)) from None


def write_snapshot(problem: Problem) -> bytes:
    """The reverse of `read_snapshot`. Raises `SnapshotError` where readiness or footprint differ between replicas."""
    everywhere = tuple(knapsack.id for knapsack in problem.knapsacks)
    return msgspec.json.encode(
        _Snapshot(
            [_Replica(k.id, k.capacity_tokens, k.slots) for k in problem.knapsacks],
            [_session(item, everywhere) for item in problem.items],
            problem.wait_seconds_max,
        )
    )


def answer_fields(answer: Answer) -> dict[str, object]:
    """The answer as `tao plan --json` prints it; `ageing` only where sessions waited too long."""
    fields: dict[str, object] = {
        "status": answer.status,
        "solver": answer.solver,
        "objective": _named(answer.objective),
        "bound": _named(answer.bound),
        "assignment": dict(answer.assignment),
        "elapsed_seconds": answer.elapsed_seconds,
    }
    if answer.ageing is not None:
        fields["ageing"] = {
            "aged": list(answer.ageing.aged),
            "placed": list(answer.ageing.placed),
            "price": _named(answer.ageing.price),
        }
    return fields


def _named(triple: Triple) -> dict[Literal["credit", "ready", "footprint"], int]:
    return {"credit": triple.credit, "ready": triple.readiness, "footprint": triple.footprint}


def _check_unique(ids: Iterable[str], kind: str) -> None:
    seen: set[str] = set()
    for id_ in ids:
        if id_ in seen:
            raise SnapshotError(f"{kind} id {id_!r} is there twice")
        seen.add(id_)


def _item(session: _Session, replicas: tuple[str, ...]) -> Item:
    eligible = replicas if session.eligible is None else session.eligible
    for field, names in (("eligible", eligible), ("credit", session.credit)):
        for name in names:
            if name not in replicas:
                raise SnapshotError(
                    f"session {session.id!r}: {field} names {name!r}, which is no replica here"
                )
            if name not in eligible:
                raise SnapshotError(
                    f"session {session.id!r}: has credit on {name!r}, which is not eligible for it"
                )
    if len(set(eligible)) < len(eligible):
        raise SnapshotError(f"session {session.id!r}: eligible names a replica twice")
    values = SparseValues(eligible, session.credit, session.ready, session.footprint_tokens)
    return Item(session.id, session.weight_tokens, values, session.home, session.waited_seconds)


def _session(item: Item, everywhere: tuple[str, ...]) -> _Session:
    values: Mapping[str, Triple] = item.values
    rest = {triple[1:] for triple in values.values()}
    if len(rest) > 1:
        raise SnapshotError(f"session {item.id!r}: readiness or footprint differ between replicas")
    readiness, footprint = rest.pop() if rest else (0, 0)
    if readiness > 1:
        raise SnapshotError(f"session {item.id!r}: readiness is {readiness}, not 0 or 1")
    eligible = tuple(values)
    return _Session(
        id=item.id,
        weight_tokens=item.weight_tokens,
        footprint_tokens=footprint,
        ready=readiness,
        credit={b: triple.credit for b, triple in values.items() if triple.credit},
        eligible=None if set(eligible) == set(everywhere) else eligible,
        home=item.home,
        waited_seconds=item.waited_seconds,
    )
