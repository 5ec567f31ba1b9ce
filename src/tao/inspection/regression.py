"""From times to constants: the terms of prefill by least squares, and the time of a step from streams.

Relative errors count, so that short prompts weigh as much as long ones. No term is negative: one that would be is left
out. It must not know how the times were got.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

PIECES_MIN = 4
"""Pieces that a stream must have in the time in which all streams decode."""


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """`ms` until the first token of a prompt of `tokens`, of which `cached_tokens` were cached."""

    tokens: int
    cached_tokens: int
    ms: float


@dataclass(frozen=True, slots=True)
class PrefillTerms:
    """c0 + c1 n + c2 n (p + n / 2), milliseconds; `error` is the largest relative error at a measured point."""

    fixed_ms: float
    ms_per_token: float
    ms_per_token_squared: float
    error: float


def fit_prefill(points: Sequence[PrefillPoint]) -> PrefillTerms:
    """The terms that fit best; with fewer points fewer of them are not zero. At least two points of different length."""
    rows = []
    for point in points:
        new = point.tokens - point.cached_tokens
        rows.append((1.0, float(new), new * (point.cached_tokens + new / 2)))
    times = np.array([point.ms for point in points])
    table = np.array(rows) / times[:, None]
    best: tuple[float, tuple[float, ...]] | None = None
    for terms in ((1,), (0, 1), (1, 2), (0, 1, 2)):
        if len(terms) > len(points):
            continue
        found, *_ = np.linalg.lstsq(table[:, terms], np.ones(len(points)), rcond=None)
        if (found < 0).any():
            continue
        constants = np.zeros(3)
        constants[list(terms)] = found
        off = float(np.square(table @ constants - 1.0).sum()) * (1.0 + 1e-9 * len(terms))
        if best is None or off < best[0]:
            best = off, tuple(float(value) for value in constants)
    assert best is not None, "a single positive term always fits"
    fixed, linear, square = best[1]
    error = float(np.abs(table @ np.array(best[1]) - 1.0).max())
    return PrefillTerms(fixed, max(linear, 1e-9), square, error)


def step_ms(streams: Sequence[tuple[Sequence[float], int]]) -> float | None:
    """The time between tokens while all streams decode, in the unit of their times; None where they never all did.

    A stream is the times of its pieces and its tokens: a piece may hold several.
    """
    begin = max(times[0] for times, _ in streams)
    end = min(times[-1] for times, _ in streams)
    spans = []
    for times, tokens in streams:
        inside = [at for at in times if begin <= at <= end]
        if len(inside) < PIECES_MIN or len(times) < 2:
            return None
        per_piece = max(1.0, (tokens - 1) / (len(times) - 1))
        spans.append((inside[-1] - inside[0]) / ((len(inside) - 1) * per_piece))
    return median(spans)
