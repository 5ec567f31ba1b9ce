"""One run's figures out of its turns: the fold that live, replayed and simulated runs share.

Definitions are in the docstring of RunSummary and nowhere else. Pure: numbers in, numbers out. It must not
know HTTP, a clock, policies, or where the measurements came from.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from tao.record.measure import TurnMeasurement


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles (linear interpolation between order statistics) in seconds; all None without a
    value.
    """

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Distribution":
        ordered = sorted(values)
        if not ordered:
            return cls(0, None, None, None, None, None)
        p50, p90, p99 = (_percentile(ordered, share) for share in (0.50, 0.90, 0.99))
        return cls(len(ordered), math.fsum(ordered) / len(ordered), p50, p90, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of one run, in model seconds.

    - `sessions` seen, of which `sessions_failed` had a turn that failed for good. `turns`, of which
    `turns_failed`. - `latency_seconds` of a session: first arrival to last byte, tools (and capped human
    waits) included; failed
      sessions are left out.
    - `ttft_seconds`: arrival to first token, holds and retries included, of all turns with a first token.
    - `tool_end_to_first_token_seconds`: the same from the end of the preceding tool, where there was one.
    - `hold_seconds`: of the turns whose hold time is known.
    - `decode_tokens_per_second`: output tokens per second of the window in which all workers are busy: from
    the
      start of the last worker's first session to the end of the first session that left fewer sessions than
      workers. A turn's tokens count as evenly spread from its first token to its end. None if there is no
      such window. Sessions with a parent hold no worker; their tokens count.
    - `decode_tokens_per_second_overall`: output tokens over `makespan_seconds` (first arrival to last byte).
    - `prefix_hit_rate`: cached over prompt tokens of the turns that reported both.
    - `errors`: failed turns by kind; `retries`: failed attempts that were followed by another, by kind.
    """

    workers: int
    sessions: int
    sessions_failed: int
    turns: int
    turns_failed: int
    latency_seconds: Distribution
    ttft_seconds: Distribution
    tool_end_to_first_token_seconds: Distribution
    hold_seconds: Distribution
    decode_tokens_per_second: float | None
    decode_tokens_per_second_overall: float | None
    makespan_seconds: float
    prefix_hit_rate: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    errors: dict[str, int]
    retries: dict[str, int]

    def to_json_dict(self) -> dict[str, object]:
        """The row of a report's JSON file: plain numbers, strings and nested objects."""
        return asdict(self)


def summarise(measurements: Iterable[TurnMeasurement], *, workers: int) -> RunSummary:
    """Fold the turns of one run, in any order; `workers` is the number of closed-loop workers, at least 1."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    turns = sorted(measurements, key=lambda m: (m.arrived_at, m.session_id, m.turn_index))
    spans = _session_spans(turns)
    ok = [span for span in spans if not span.failed]
    both = [m for m in turns if m.prompt_tokens is not None and m.cached_tokens is not None]
    prompt_of_both = sum(m.prompt_tokens or 0 for m in both)
    started = [(m, m.first_token_at) for m in turns if m.first_token_at is not None]
    makespan = max((m.finished_at for m in turns), default=0.0) - min(
        (m.arrived_at for m in turns), default=0.0
    )
    output_tokens = sum(m.output_tokens or 0 for m in turns)
    reported = any(m.output_tokens is not None for m in turns)
    return RunSummary(
        workers=workers,
        sessions=len(spans),
        sessions_failed=len(spans) - len(ok),
        turns=len(turns),
        turns_failed=sum(m.error is not None for m in turns),
        latency_seconds=Distribution.of(span.ended_at - span.started_at for span in ok),
        ttft_seconds=Distribution.of(first - m.arrived_at for m, first in started),
        tool_end_to_first_token_seconds=Distribution.of(
            first - m.tool_ended_at for m, first in started if m.tool_ended_at is not None
        ),
        hold_seconds=Distribution.of(m.hold_seconds for m in turns if m.hold_seconds is not None),
        decode_tokens_per_second=_busy_rate(turns, spans, workers) if reported else None,
        decode_tokens_per_second_overall=output_tokens / makespan if reported and makespan > 0 else None,
        makespan_seconds=makespan,
        prefix_hit_rate=sum(m.cached_tokens or 0 for m in both) / prompt_of_both if prompt_of_both else None,
        prompt_tokens=sum(m.prompt_tokens or 0 for m in turns),
        cached_tokens=sum(m.cached_tokens or 0 for m in turns),
        output_tokens=output_tokens,
        errors=_counts(m.error for m in turns if m.error is not None),
        retries=_counts(kind for m in turns for kind in m.retried),
    )


def _counts(kinds: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(kinds).items()))


@dataclass(slots=True)
class _Span:
    started_at: float
    ended_at: float
    failed: bool
    has_worker: bool


def _session_spans(turns: Sequence[TurnMeasurement]) -> list[_Span]:
    spans: dict[str, _Span] = {}
    for m in turns:
        span = spans.get(m.session_id)
        if span is None:
            spans[m.session_id] = _Span(
                m.arrived_at, m.finished_at, m.error is not None, m.parent_session_id is None
            )
        else:
            span.ended_at = max(span.ended_at, m.finished_at)
            span.failed = span.failed or m.error is not None
    return list(spans.values())


def busy_window(spans: Sequence[tuple[float, float]], workers: int) -> tuple[float, float] | None:
    """The window in which all workers are busy, from the (start, end) of the sessions they ran one after
    another.

    With fewer sessions than workers, as many workers as there are sessions.
    """
    workers = min(workers, len(spans))
    if not workers:
        return None
    starts = sorted(start for start, _ in spans)
    ends = sorted(end for _, end in spans)
    window = starts[workers - 1], ends[len(ends) - workers]
    return window if window[0] < window[1] else None


def _busy_rate(turns: Sequence[TurnMeasurement], spans: Sequence[_Span], workers: int) -> float | None:
    window = busy_window([(span.started_at, span.ended_at) for span in spans if span.has_worker], workers)
    if window is None:
        return None
    tokens = math.fsum(_tokens_within(m, *window) for m in turns if m.output_tokens)
    return tokens / (window[1] - window[0])


def _tokens_within(turn: TurnMeasurement, start: float, end: float) -> float:
    tokens = float(turn.output_tokens or 0)
    first = turn.finished_at if turn.first_token_at is None else turn.first_token_at
    if first == turn.finished_at:
        return tokens if start <= first < end else 0.0
    overlap = min(end, turn.finished_at) - max(start, first)
    return tokens * max(overlap, 0.0) / (turn.finished_at - first)


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (position - below) * (ordered[above] - ordered[below])
    return min(between, ordered[above])  # rounding must not lift a percentile above the next value
