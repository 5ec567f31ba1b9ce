"""What an engine tells of itself at one moment, whatever engine it is.

Values that it did not tell are None, and each missing or unreadable one is named in `problems`: staleness and absence
are explicit, never a guess. This file must not know HTTP, metric names or decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One data-parallel rank: an engine core with a KV cache of its own."""

    rank: str
    capacity_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class ServedTokens:
    """Tokens of prompts and of output since the engine started, by rank, which only grow while it lives; of ranks that were
    told in full.
    """

    prompt: Mapping[str, float] = field(default_factory=dict)
    output: Mapping[str, float] = field(default_factory=dict)

    def is_below(self, before: "ServedTokens") -> bool:
        """Whether any total that is known of both is smaller than it was: the engine has restarted."""
        pairs = ((self.prompt, before.prompt), (self.output, before.output))
        return any(count < then.get(rank, 0.0) for now, then in pairs for rank, count in now.items())

    def or_last(self, before: "ServedTokens") -> "ServedTokens":
        """What is told now, else what was told last."""
        return ServedTokens({**before.prompt, **self.prompt}, {**before.output, **self.output})


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One reading of an engine.

    Requests and KV tokens are sums over `ranks`. `kv_usage` (0..1) is weighted by capacity; engines count only blocks
    of running requests, so an idle engine with a full prefix cache reads 0. Counters are totals since the engine
    started: prefix queries and hits and tokens in tokens (`served` by rank), preemptions in events. `started_at`: when the
    process of the engine began (seconds since 1970), where its page tells.
    """

    engine: str
    capacity_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    prefix_query_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    served: ServedTokens = field(default_factory=ServedTokens)
    started_at: float | None = None
    ranks: tuple[RankStatus, ...] = ()
    problems: tuple[str, ...] = ()


class EngineAdapter(Protocol):
    """Knows where one kind of engine tells what, and how to read it."""

    @property
    def name(self) -> str:
        """`vllm`, `sglang`, ..."""

    @property
    def health_path(self) -> str:
        """Answers 200 while the engine can serve."""

    @property
    def metrics_path(self) -> str:
        """The Prometheus page."""

    @property
    def flush_path(self) -> str | None:
        """POST there empties the prefix cache; None where there is no such path."""

    def read(self, page: bytes) -> EngineStatus:
        """The status that a metrics page shows; never raises."""
