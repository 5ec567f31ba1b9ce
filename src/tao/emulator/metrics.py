"""The metrics page: vLLM's names over the engine model's counters, and the emulator's own lag.

It must not know HTTP or requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from tao.emulator.engine_loop import EngineLoop

FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


class MetricsPage:
    """Renders Prometheus text; keeps the histogram of times to first token (model seconds)."""

    def __init__(self, loop: EngineLoop, model_name: str) -> None:
        self._loop = loop
        escaped = model_name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._labels = f'engine="0",model_name="{escaped}"'
        self._buckets = [0] * len(FIRST_TOKEN_BUCKETS)
        self._count = 0
        self._sum = 0.0

    def render(self) -> str:
        self._loop.settle()
        stats = self._loop.model.stats()
        lag = self._loop.lag
        lines: list[str] = []
        self._gauge(lines, "vllm:num_requests_running", "Requests in execution", stats.running)
        self._gauge(lines, "vllm:num_requests_waiting", "Requests waiting", stats.waiting)
        self._gauge(
            lines, "vllm:kv_cache_usage_perc", "KV blocks held by running requests, 1 = all", stats.kv_usage
        )
        self._counter(
            lines, "vllm:prefix_cache_queries", "Prompt tokens looked up", stats.prefix_query_tokens
        )
        self._counter(lines, "vllm:prefix_cache_hits", "Prompt tokens found", stats.prefix_hit_tokens)
        self._counter(lines, "vllm:prompt_tokens", "Prompt tokens", stats.prompt_tokens)
        self._counter(
            lines, "vllm:prompt_tokens_cached", "Prompt tokens from the cache", stats.prefix_hit_tokens
        )
        self._counter(lines, "vllm:generation_tokens", "Generated tokens", stats.generation_tokens)
        self._counter(lines, "vllm:num_preemptions", "Preemptions", stats.preemptions)
        reasons = self._loop.finished_reasons.items()
        name = "vllm:request_success_total"
        lines += [f"# HELP {name} Finished requests", f"# TYPE {name} counter"]
        lines += [
            f'{name}{{{self._labels},finished_reason="{reason}"}} {float(count)}' for reason, count in reasons
        ]
        lines += self._first_token_histogram()
        name = "vllm:e2e_request_latency_seconds"
        lines += [f"# HELP {name} Arrival to last token, model seconds", f"# TYPE {name} summary"]
        lines += [f"{name}_sum{{{self._labels}}} {lag.model_seconds}"]
        lines += [f"{name}_count{{{self._labels}}} {float(lag.requests)}"]
        self._cache_config(lines, stats.total_blocks)
        self._gauge(
            lines,
            "tao_emulator_lag_last_seconds",
            "Lateness of the last finish, model time",
            lag.last_seconds,
        )
        self._gauge(lines, "tao_emulator_lag_max_seconds", "Largest lateness, model time", lag.max_seconds)
        self._gauge(
            lines, "tao_emulator_lag_share", "Lateness over duration, all finished requests", lag.share()
        )
        self._gauge(lines, "tao_emulator_cached_blocks", "Idle cached blocks", stats.idle_blocks)
        return "\n".join(lines) + "\n"

    def _gauge(self, lines: list[str], name: str, text: str, value: float) -> None:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name}{{{self._labels}}} {float(value)}"]

    def _counter(self, lines: list[str], name: str, text: str, value: float) -> None:
        lines += [f"# HELP {name}_total {text}", f"# TYPE {name}_total counter"]
        lines.append(f"{name}_total{{{self._labels}}} {float(value)}")

    def _cache_config(self, lines: list[str], blocks: int) -> None:
        size = self._loop.model.profile.block_tokens
        info = f'block_size="{size}",num_gpu_blocks="{blocks}",kv_cache_size_tokens="{blocks * size}"'
        name = "vllm:cache_config_info"
        lines += [f"# HELP {name} KV cache", f"# TYPE {name} gauge"]
        lines.append(f'{name}{{{info},enable_prefix_caching="True",engine="0"}} 1.0')

    def _first_token_histogram(self) -> Iterable[str]:
        observed, self._loop.first_token_seconds = self._loop.first_token_seconds, []
        for seconds in observed:
            self._count += 1
            self._sum += seconds
            for index, bound in enumerate(FIRST_TOKEN_BUCKETS):
                if seconds <= bound:
                    self._buckets[index] += 1
        name = "vllm:time_to_first_token_seconds"
        yield f"# HELP {name} Time to first token, model seconds"
        yield f"# TYPE {name} histogram"
        for bound, count in zip(FIRST_TOKEN_BUCKETS, self._buckets, strict=True):
            yield f'{name}_bucket{{{self._labels},le="{bound}"}} {float(count)}'
        yield f'{name}_bucket{{{self._labels},le="+Inf"}} {float(self._count)}'
        yield f"{name}_sum{{{self._labels}}} {self._sum}"
        yield f"{name}_count{{{self._labels}}} {float(self._count)}"
