"""Putting a page's series together: one value a rank, sums and means over ranks.

An engine with data parallelism has one series of each kind per rank; taking the first one would see a fraction of its
capacity. It must not know the engines' own metric names.
"""

from collections.abc import Mapping, Sequence

from tao.engines.samples import Sample, Samples
from tao.engines.status import RankStatus

STARTED = ("process_start_time_seconds",)
"""Of Prometheus' own client, in any process."""

COUNT_MAX = 10**15
"""Tokens or requests: an engine that tells more tells nonsense."""

MOMENT_MAX = 1e11
"""Seconds since 1970: in some thousand years."""

USAGE_MAX = 1.5
"""Share of the KV cache: above all of it there are rounding errors only."""


def by_rank(samples: Sequence[Sample], rank_labels: tuple[str, ...]) -> dict[str, float]:
    """The values of one gauge or counter per rank; several series of a rank (models, reasons) are added up."""
    values: dict[str, float] = {}
    for sample in samples:
        rank = rank_of(sample, rank_labels)
        values[rank] = values.get(rank, 0.0) + sample.value
    return values


def rank_of(sample: Sample, rank_labels: tuple[str, ...]) -> str:
    """The rank a series belongs to; `0` where it has no such label."""
    return next((sample.labels[label] for label in rank_labels if sample.labels.get(label)), "0")


def total(samples: Samples, names: Sequence[str], told: list[str] | None = None) -> float | None:
    """The sum over all series of the first name the page has; a missing one is noted in `told`. None, too, where one of the
    series cannot be read: a part of a counter looks as if it had fallen.
    """
    if not samples.unreadable.isdisjoint(names):
        return None
    found = samples.first_of(names)
    if not found:
        if told is not None:
            told.append(f"metrics page has no {names[0]}")
        return None
    return sum(sample.value for sample in found)


def totals_by_rank(
    samples: Samples, names: Sequence[str], rank_labels: tuple[str, ...], told: list[str]
) -> dict[str, float]:
    """As `total`, of each rank that the page tells of; nothing where a series cannot be read, since it may be of any."""
    if not samples.unreadable.isdisjoint(names):
        return {}
    return plausible(by_rank(samples.first_of(names), rank_labels), names[0], COUNT_MAX, told)


def sum_of_ranks(counted: Mapping[str, float], ranks: Sequence[RankStatus]) -> float | None:
    """The sum, where it is known of every rank."""
    whole = counted and all(row.rank in counted for row in ranks)
    return sum(counted.values()) if whole else None


def started_at(samples: Samples, told: list[str]) -> float | None:
    """When the youngest process behind the page began, seconds since 1970; None where the page does not tell."""
    began = [sample.value for sample in samples.first_of(STARTED)]
    told += [f"{STARTED[0]} is {at:g}" for at in began if not 0 < at <= MOMENT_MAX]
    return max((at for at in began if 0 < at <= MOMENT_MAX), default=None)


def plausible(values: Mapping[str, float], name: str, most: float, told: list[str]) -> dict[str, float]:
    """The values by rank that an engine can have; others are named in `told`."""
    good = {rank: value for rank, value in values.items() if 0 <= value <= most}
    told += [f"{name} of rank {rank} is {value:g}" for rank, value in values.items() if rank not in good]
    return good


def rank_rows(
    capacity: Mapping[str, float],
    running: Mapping[str, float],
    waiting: Mapping[str, float],
    usage: Mapping[str, float],
) -> tuple[RankStatus, ...]:
    """One row for each rank that any of the values names, in the order of rank numbers."""
    ranks = sorted({*capacity, *running, *waiting, *usage}, key=lambda rank: (len(rank), rank))
    return tuple(
        RankStatus(
            rank, _whole(capacity, rank), _whole(running, rank), _whole(waiting, rank), usage.get(rank)
        )
        for rank in ranks
    )


def gaps(rows: Sequence[RankStatus]) -> list[str]:
    """What single ranks do not tell although others do, in words."""
    told: list[str] = []
    for name in ("capacity_tokens", "running", "waiting", "kv_usage"):
        silent = [row.rank for row in rows if getattr(row, name) is None]
        if silent and len(silent) < len(rows):
            told.append(f"metrics page tells no {name} of rank {', '.join(silent)}")
    return told


def sum_or_none(values: Sequence[int | None]) -> int | None:
    """The sum, where every value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def mean_usage(rows: Sequence[RankStatus]) -> float | None:
    """KV usage over all ranks, weighted by capacity where that is known of every rank."""
    known = [(row.kv_usage, row.capacity_tokens) for row in rows if row.kv_usage is not None]
    if not known:
        return None
    weights = [capacity or 0 for _, capacity in known]
    if not all(weights):
        weights = [1] * len(known)
    weighted = sum(usage * weight for (usage, _), weight in zip(known, weights, strict=True))
    return weighted / sum(weights)


def _whole(values: Mapping[str, float], rank: str) -> int | None:
    value = values.get(rank)
    return None if value is None else round(value)
