"""What goes into the engine model and what comes out: requests, events, counters, refusals.

Values only. Times are model seconds on the caller's axis.
"""

from __future__ import annotations

from typing import TypeAlias

from tao.enginemodel.chain import Chain, Segment
from tao.values import value


@value
class Request:
    """One model request.

    `output_tokens` is how many tokens it will generate (>= 1, known beforehand: a model, not an engine).
    `output` is the content of these tokens, so that a later prompt that repeats it finds them in the
    cache; by default it is one segment with the key ("output", id).
    """

    id: str
    prompt: Chain
    output_tokens: int
    output: tuple[Segment, ...] = ()

    def conversation(self) -> Chain:
        """The prompt and what is generated: the prefix of the session's next prompt."""
        if not self.output:
            return self.prompt.extended(("output", self.id), self.output_tokens)
        chain = self.prompt
        for key, tokens in self.output:
            chain = chain.extended(key, tokens)
        return chain


@value
class FirstToken:
    """The prompt is computed and the first token is there. `cached_tokens`: prompt tokens found in the
    cache.
    """

    at: float
    request_id: str
    cached_tokens: int


@value
class Finished:
    """The last token is there; the request has left the engine and its blocks are cached."""

    at: float
    request_id: str
    cached_tokens: int
    output_tokens: int


@value
class Preempted:
    """KV blocks ran out: the request lost its blocks after `generated_tokens` and waits to be computed
    again.
    """

    at: float
    request_id: str
    generated_tokens: int


EngineEvent: TypeAlias = FirstToken | Finished | Preempted


@value
class EngineStats:
    """Gauges at `at` and counters since the start (or the last restart).

    `used_blocks` are held by running requests, `idle_blocks` are cached and may be evicted; the rest is
    empty. `prefix_hit_tokens` were found in the GPU's cache, `reloaded_tokens` came from host memory instead.
    """

    at: float
    running: int
    waiting: int
    total_blocks: int
    used_blocks: int
    idle_blocks: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    finished: int
    aborted: int
    reloaded_tokens: int = 0

    @property
    def kv_usage(self) -> float:
        """Share of blocks held by running requests, as in vLLM's `kv_cache_usage_perc` (0 when idle)."""
        return self.used_blocks / self.total_blocks


class RequestRefusedError(ValueError):
    """The engine can never serve this request (too long, malformed, an id in use); the text says why."""
