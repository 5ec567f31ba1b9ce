"""Problems and answers as compact bytes, for the pipe between a process and its planner.

MessagePack. Values that differ in credit only travel as `SparseValues`, and each distinct `eligible` tuple travels
once, so that 1,000 items x 64 knapsacks are some tens of kilobytes and about a millisecond of the sender's time.
"""

import struct
from dataclasses import dataclass

import msgspec

from tao.planning.answer import Answer
from tao.planning.problem import Item, Knapsack, Problem, SparseValues, Triple

FRAME_HEADER = struct.Struct(">I")
FRAME_BYTES_MAX = 1 << 28


@dataclass(frozen=True, slots=True)
class Request:
    """One plan asked for: a problem in wire form, the solver's name, and the wall-clock guard of its search."""

    problem: bytes
    solver: str
    search_seconds: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """Exactly one of the two: the answer, or the traceback of what the solver raised."""

    answer: Answer | None
    error: str | None


def frame(payload: bytes) -> bytes:
    """A length (four bytes, big-endian) and the payload."""
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(payload)} bytes is above the limit of {FRAME_BYTES_MAX}")
    return FRAME_HEADER.pack(len(payload)) + payload


class _Row(msgspec.Struct, array_like=True):
    """An item; `eligible` indexes the table of tuples, and is None where `values` has the full triples."""

    id: str
    weight_tokens: int
    home: str | None
    waited_seconds: float
    eligible: int | None = None
    readiness: int = 0
    footprint: int = 0
    credit: dict[str, int] = {}
    values: dict[str, Triple] = {}


class _Body(msgspec.Struct, array_like=True):
    knapsacks: list[tuple[str, int, int | None]]
    wait_seconds_max: float | None
    eligible: list[tuple[str, ...]]
    rows: list[_Row]


def encode_problem(problem: Problem) -> bytes:
    """The problem in wire form; about a microsecond for each item with sparse values."""
    tables: dict[int, int] = {}
    eligible: list[tuple[str, ...]] = []
    rows = []
    for item in problem.items:
        values = item.values
        row = _Row(item.id, item.weight_tokens, item.home, item.waited_seconds)
        if isinstance(values, SparseValues):
            if id(values.eligible) not in tables:
                tables[id(values.eligible)] = len(eligible)
                eligible.append(values.eligible)
            row.eligible = tables[id(values.eligible)]
            row.readiness, row.footprint, row.credit = values.readiness, values.footprint, dict(values.credit)
        else:
            row.values = dict(values)
        rows.append(row)
    knapsacks = [(k.id, k.capacity_tokens, k.slots) for k in problem.knapsacks]
    return msgspec.msgpack.encode(_Body(knapsacks, problem.wait_seconds_max, eligible, rows))


def decode_problem(data: bytes) -> Problem:
    """The reverse; raises `msgspec.DecodeError` or `ProblemError` on anything that is no checked problem."""
    body = msgspec.msgpack.decode(data, type=_Body)
    return Problem(
        tuple(Knapsack(*fields) for fields in body.knapsacks),
        tuple(_item(row, body.eligible) for row in body.rows),
        body.wait_seconds_max,
    )


def _item(row: _Row, eligible: list[tuple[str, ...]]) -> Item:
    if row.eligible is None:
        return Item(row.id, row.weight_tokens, row.values, row.home, row.waited_seconds)
    values = SparseValues(eligible[row.eligible], row.credit, row.readiness, row.footprint)
    return Item(row.id, row.weight_tokens, values, row.home, row.waited_seconds)


def encode_request(request: Request) -> bytes:
    return msgspec.msgpack.encode(request)


def decode_request(data: bytes) -> Request:
    return msgspec.msgpack.decode(data, type=Request)


def encode_reply(reply: Reply) -> bytes:
    return msgspec.msgpack.encode(reply)


def decode_reply(data: bytes) -> Reply:
    return msgspec.msgpack.decode(data, type=Reply)
