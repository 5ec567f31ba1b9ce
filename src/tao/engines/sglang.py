"""SGLang's metrics page (`--enable-metrics`).

Capacity is `sglang:max_total_num_tokens`. Series repeat per tensor-parallel rank with equal values, so one of each
data-parallel rank counts. Counters of tokens come onto the page with the first request that they count, so one that is not
there yet is at zero. It must not know HTTP or decisions.
"""

from tao.engines.ranks import (
    COUNT_MAX,
    STARTED,
    USAGE_MAX,
    gaps,
    mean_usage,
    plausible,
    rank_of,
    rank_rows,
    started_at,
    sum_or_none,
    total,
    totals_by_rank,
)
from tao.engines.samples import Samples, read_samples
from tao.engines.status import EngineStatus, RankStatus, ServedTokens

PREFIX = "sglang:"

_RANK_LABELS = ("dp_rank", "engine")
_CAPACITY = ("sglang:max_total_num_tokens",)
_RUNNING = ("sglang:num_running_reqs",)
_WAITING = ("sglang:num_queue_reqs",)
_USAGE = ("sglang:token_usage",)
_HITS = ("sglang:cached_tokens_total",)
_RETRACTED = ("sglang:num_retracted_requests_total",)
"""Since the start; `sglang:num_retracted_reqs` is a gauge of the latest step."""
_PROMPT = ("sglang:prompt_tokens_total",)
_OUTPUT = ("sglang:generation_tokens_total",)
_WANTED = frozenset(
    (*_CAPACITY, *_RUNNING, *_WAITING, *_USAGE, *_HITS, *_RETRACTED, *_PROMPT, *_OUTPUT, *STARTED)
)


class SglangAdapter:
    """SGLang 0.4 and later, started with `--enable-metrics`."""

    name = "sglang"
    health_path = "/health"
    metrics_path = "/metrics"
    flush_path = "/flush_cache"

    def read(self, page: bytes) -> EngineStatus:
        """See `EngineAdapter.read`. Prefix queries are the prompt tokens: SGLang looks all of them up."""
        samples = read_samples(page, _WANTED)
        problems = samples.problems
        rows = rank_rows(
            _per_rank(samples, _CAPACITY, problems),
            _per_rank(samples, _RUNNING, problems),
            _per_rank(samples, _WAITING, problems),
            _per_rank(samples, _USAGE, problems, USAGE_MAX),
        )
        served = ServedTokens(
            *(_counted(samples, names, rows, problems) for names in (_PROMPT, _OUTPUT)),
        )
        prompt_tokens = sum(served.prompt.values()) if served.prompt else None
        hits = _counted(samples, _HITS, rows, problems)
        return EngineStatus(
            engine=self.name,
            capacity_tokens=sum_or_none([row.capacity_tokens for row in rows]),
            running=sum_or_none([row.running for row in rows]),
            waiting=sum_or_none([row.waiting for row in rows]),
            kv_usage=mean_usage(rows),
            prefix_query_tokens=prompt_tokens,
            prefix_hit_tokens=sum(hits.values()) if hits else None,
            preemptions=total(samples, _RETRACTED),
            prompt_tokens=prompt_tokens,
            output_tokens=sum(served.output.values()) if served.output else None,
            served=served,
            started_at=started_at(samples, problems),
            ranks=rows,
            problems=(*problems, *gaps(rows)),
        )


def _counted(
    samples: Samples, names: tuple[str, ...], rows: tuple[RankStatus, ...], problems: list[str]
) -> dict[str, float]:
    """A counter of tokens by rank; 0 where the page tells of ranks but not yet of it."""
    counted = totals_by_rank(samples, names, _RANK_LABELS, problems)
    if counted or samples.first_of(names) or not samples.unreadable.isdisjoint(names):
        return counted
    return {row.rank: 0.0 for row in rows}


def _per_rank(
    samples: Samples, names: tuple[str, ...], problems: list[str], most: float = COUNT_MAX
) -> dict[str, float]:
    found = samples.first_of(names)
    if not found:
        problems.append(f"metrics page has no {names[0]}")
    values: dict[str, float] = {}
    for sample in found:
        values.setdefault(rank_of(sample, _RANK_LABELS), sample.value)
    return plausible(values, names[0], most, problems)
