"""vLLM's metrics page, present and older names (`vllm/v1/metrics/loggers.py`).

Capacity is blocks times block size of `vllm:cache_config_info`, or its `kv_cache_size_tokens` where newer versions tell
it (hybrid models have caches that the product does not describe). It must not know HTTP or decisions.
"""

from tao.engines.ranks import (
    COUNT_MAX,
    STARTED,
    USAGE_MAX,
    by_rank,
    gaps,
    mean_usage,
    plausible,
    rank_of,
    rank_rows,
    started_at,
    sum_of_ranks,
    sum_or_none,
    total,
    totals_by_rank,
)
from tao.engines.samples import Sample, Samples, read_samples
from tao.engines.status import EngineStatus, RankStatus, ServedTokens

PREFIX = "vllm:"

_RANK_LABELS = ("engine",)
_CONFIG = ("vllm:cache_config_info",)
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_QUERIES = (
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_queries_total",
)
_HITS = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total")
_PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_PROMPT = ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
_OUTPUT = ("vllm:generation_tokens_total", "vllm:generation_tokens")
_WANTED = frozenset(
    (*_CONFIG, *_RUNNING, *_WAITING, *_USAGE, *_QUERIES, *_HITS, *_PREEMPTIONS, *_PROMPT, *_OUTPUT, *STARTED)
)


class VllmAdapter:
    """vLLM 0.6 and later."""

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    flush_path = "/reset_prefix_cache"

    def read(self, page: bytes) -> EngineStatus:
        """See `EngineAdapter.read`."""
        samples = read_samples(page, _WANTED)
        problems = samples.problems
        rows = rank_rows(
            _capacities(samples, problems),
            _per_rank(samples, _RUNNING, problems),
            _per_rank(samples, _WAITING, problems),
            _per_rank(samples, _USAGE, problems, USAGE_MAX),
        )
        served = ServedTokens(
            *(_counted(samples, names, rows, problems) for names in (_PROMPT, _OUTPUT)),
        )
        return EngineStatus(
            engine=self.name,
            capacity_tokens=sum_or_none([row.capacity_tokens for row in rows]),
            running=sum_or_none([row.running for row in rows]),
            waiting=sum_or_none([row.waiting for row in rows]),
            kv_usage=mean_usage(rows),
            prefix_query_tokens=total(samples, _QUERIES, problems),
            prefix_hit_tokens=total(samples, _HITS, problems),
            preemptions=total(samples, _PREEMPTIONS, problems),
            prompt_tokens=sum_of_ranks(served.prompt, rows),
            output_tokens=sum_of_ranks(served.output, rows),
            served=served,
            started_at=started_at(samples, problems),
            ranks=rows,
            problems=(*problems, *gaps(rows)),
        )


def _counted(
    samples: Samples, names: tuple[str, ...], rows: tuple[RankStatus, ...], problems: list[str]
) -> dict[str, float]:
    """A counter of tokens, which every rank has from its start."""
    counted = totals_by_rank(samples, names, _RANK_LABELS, problems)
    silent = [row.rank for row in rows if row.rank not in counted]
    if silent and samples.unreadable.isdisjoint(names):
        problems.append(f"metrics page tells no {names[0]} of rank {', '.join(silent)}")
    return counted


def _per_rank(
    samples: Samples, names: tuple[str, ...], problems: list[str], most: float = COUNT_MAX
) -> dict[str, float]:
    found = samples.first_of(names)
    if not found:
        problems.append(f"metrics page has no {names[0]}")
    return plausible(by_rank(found, _RANK_LABELS), names[0], most, problems)


def _capacities(samples: Samples, problems: list[str]) -> dict[str, float]:
    found = samples.first_of(_CONFIG)
    if not found:
        problems.append(f"metrics page has no {_CONFIG[0]}: the KV capacity is unknown")
    capacities: dict[str, float] = {}
    for sample in found:
        rank = rank_of(sample, _RANK_LABELS)
        tokens = _capacity(sample)
        if tokens is None:
            told = {name: sample.labels.get(name) for name in ("block_size", "num_gpu_blocks")}
            problems.append(f"{_CONFIG[0]} of rank {rank} tells no capacity: {told}")
        else:
            capacities[rank] = tokens
    return capacities


def _capacity(sample: Sample) -> int | None:
    tokens = _positive(sample.labels.get("kv_cache_size_tokens"))
    if tokens is not None:
        return tokens
    block, blocks = _positive(sample.labels.get("block_size")), _positive(sample.labels.get("num_gpu_blocks"))
    return None if block is None or blocks is None else block * blocks


def _positive(value: str | None) -> int | None:
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 15:
        return None
    return int(value) or None
