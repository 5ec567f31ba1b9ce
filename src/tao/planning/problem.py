"""The joint decision as data: items with weights and values, knapsacks with capacities.

Everything here is an integer with a documented limit, or an id. A `Problem` is checked once, when it is built, so no
solver checks again. This package must not know what an item or a knapsack stands for: no sessions, no engines, no
clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

ITEMS_MAX = 20_000
KNAPSACKS_MAX = 1_024
PAIRS_MAX = 1 << 22
"""Most items x knapsacks of one problem."""
VALUE_MAX = (1 << 40) - 1
"""Largest weight, capacity or coordinate of a value: sums over `ITEMS_MAX` items stay below 2**55."""


class ProblemError(ValueError):
    """A problem that breaks a rule or a limit of this module; the message names the item and what is wrong."""


class Triple(NamedTuple):
    """A value: compared coordinate by coordinate, never summed up into one number (equations 2 and 3)."""

    credit: int
    readiness: int
    footprint: int


ZERO = Triple(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Knapsack:
    """Room for items: tokens that are free, and how many more items it takes (`slots`; None: any number)."""

    id: str
    capacity_tokens: int
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class SparseValues(Mapping[str, Triple]):
    """Values that differ between knapsacks in credit only, and there only for the knapsacks named in `credit`.

    The compact form of `Item.values`: with 1,000 items and 64 knapsacks a table of 64,000 triples is never built.
    Share one `eligible` tuple among items: it is then checked, sent and compared once.
    """

    eligible: tuple[str, ...]
    credit: Mapping[str, int]
    readiness: int
    footprint: int

    def __getitem__(self, knapsack_id: str) -> Triple:
        if knapsack_id not in self.eligible:
            raise KeyError(knapsack_id)
        return Triple(self.credit.get(knapsack_id, 0), self.readiness, self.footprint)

    def __iter__(self) -> Iterator[str]:
        return iter(self.eligible)

    def __len__(self) -> int:
        return len(self.eligible)


@dataclass(frozen=True, slots=True)
class Item:
    """Something to place: what it costs, and what it is worth in each knapsack that it may go to.

    `values` holds one triple for each eligible knapsack and no other key. `home` is where the item would like to
    stay (ties go there); a home that is no knapsack of the problem makes every placement a move.
    """

    id: str
    weight_tokens: int
    values: Mapping[str, Triple]
    home: str | None = None
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One frozen decision (equation 1): each item in at most one knapsack, none above its capacity or slots.

    With `wait_seconds_max`, items that waited at least that long come first (see `tao.planning.ageing`).
    Raises `ProblemError` where an id is empty or twice there, a number is not an `int` in `0..VALUE_MAX`, a value
    names an unknown knapsack, or the problem is larger than `ITEMS_MAX`, `KNAPSACKS_MAX` or `PAIRS_MAX`.
    """

    knapsacks: tuple[Knapsack, ...]
    items: tuple[Item, ...]
    wait_seconds_max: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "knapsacks", tuple(self.knapsacks))
        object.__setattr__(self, "items", tuple(self.items))
        _check_size(len(self.items), len(self.knapsacks))
        _check_seconds(self.wait_seconds_max, "wait_seconds_max")
        for knapsack in self.knapsacks:
            _check_knapsack(knapsack)
        _check_ids((knapsack.id for knapsack in self.knapsacks), "knapsack")
        _check_ids((item.id for item in self.items), "item")
        known = frozenset(knapsack.id for knapsack in self.knapsacks)
        checked: set[int] = set()
        for item in self.items:
            _check_item(item, known, checked)


def _check_size(items: int, knapsacks: int) -> None:
    if items > ITEMS_MAX:
        raise ProblemError(f"{items} items are more than the limit of {ITEMS_MAX}")
    if knapsacks > KNAPSACKS_MAX:
        raise ProblemError(f"{knapsacks} knapsacks are more than the limit of {KNAPSACKS_MAX}")
    if items * knapsacks > PAIRS_MAX:
        raise ProblemError(
            f"{items} items x {knapsacks} knapsacks are more than the limit of {PAIRS_MAX} pairs"
        )


def _check_ids(ids: Iterable[object], kind: str) -> None:
    seen: set[str] = set()
    for id_ in ids:
        if not isinstance(id_, str) or not id_:
            raise ProblemError(f"{kind} id {id_!r} must be a non-empty string")
        if id_ in seen:
            raise ProblemError(f"{kind} id {id_!r} is there twice")
        seen.add(id_)


def _check_integer(value: object, what: str) -> None:
    if type(value) is not int:
        raise ProblemError(f"{what} must be an integer, not {value!r}")
    if value < 0:
        raise ProblemError(f"{what} must not be negative, but is {value}")
    if value > VALUE_MAX:
        raise ProblemError(f"{what} is {value}, above the limit of {VALUE_MAX}")


def _check_seconds(value: object, what: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise ProblemError(f"{what} must be a finite number of seconds >= 0, not {value!r}")


def _check_knapsack(knapsack: Knapsack) -> None:
    _check_integer(knapsack.capacity_tokens, f"knapsack {knapsack.id!r}: capacity_tokens")
    if knapsack.slots is not None:
        _check_integer(knapsack.slots, f"knapsack {knapsack.id!r}: slots")


def _check_item(item: Item, known: frozenset[str], checked: set[int]) -> None:
    name = f"item {item.id!r}"
    _check_integer(item.weight_tokens, f"{name}: weight_tokens")
    _check_seconds(item.waited_seconds, f"{name}: waited_seconds")
    if item.home is not None and not isinstance(item.home, str):
        raise ProblemError(f"{name}: home must be a knapsack id or None, not {item.home!r}")
    if isinstance(item.values, SparseValues):
        _check_sparse(item.values, name, known, checked)
        return
    for knapsack_id, triple in item.values.items():
        _check_known(knapsack_id, name, known)
        if not isinstance(triple, Triple):
            raise ProblemError(f"{name}: the value in {knapsack_id!r} must be a Triple, not {triple!r}")
        for coordinate, value in zip(Triple._fields, triple, strict=True):
            _check_integer(value, f"{name}: {coordinate} in {knapsack_id!r}")


def _check_sparse(values: SparseValues, name: str, known: frozenset[str], checked: set[int]) -> None:
    _check_integer(values.readiness, f"{name}: readiness")
    _check_integer(values.footprint, f"{name}: footprint")
    if id(values.eligible) not in checked:
        for knapsack_id in values.eligible:
            _check_known(knapsack_id, name, known)
        _check_ids(values.eligible, f"{name}: eligible knapsack")
        checked.add(id(values.eligible))
    for knapsack_id, credit in values.credit.items():
        if knapsack_id not in values.eligible:
            _check_known(knapsack_id, name, known)
            raise ProblemError(f"{name}: has credit in {knapsack_id!r}, which is not eligible for it")
        _check_integer(credit, f"{name}: credit in {knapsack_id!r}")


def _check_known(knapsack_id: object, name: str, known: frozenset[str]) -> None:
    if knapsack_id not in known:
        raise ProblemError(f"{name}: {knapsack_id!r} is not a knapsack of this problem")
