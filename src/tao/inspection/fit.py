"""`tao profile fit`: measure prefill, decode and KV capacity of an engine within a bounded load.

The model is that of `tao.enginemodel.Profile`: step_ms = a(B) + b * context + prefill(n, p). Prefill is told by the time to
the first token of fresh prompts of several lengths, a(B) by the time between tokens of B streams that decode together, b
by what a long context adds. What one replica of its own shows is what counts: nobody else may use it meanwhile.
"""

import asyncio
import time
from dataclasses import dataclass, field

from tao.inspection.client import EngineClient, EngineError, Stream
from tao.inspection.pages import METRICS_PATH, MODELS_PATH, models_on, status_on
from tao.inspection.regression import PrefillPoint, PrefillTerms, fit_prefill, step_ms
from tao.inspection.texts import Prompts, completion

COMPLETIONS = "/v1/completions"
SHORT_TOKENS = 32
DECODE_TOKENS = 32
WARM_WORDS = 64
WARM_UPS = 2
TOKENS_PER_WORD = 2.0
"""Of the texts that are sent, until the engine has counted one."""
ATTEMPTS_MAX = 3
"""Of a single stream: one that a hold-up on its way has put together to one piece says nothing."""
STREAM_SECONDS_MIN = 0.25
"""By the clock. That shorter streams of a batch never all run at one time says nothing of the engine's own limit."""
SCATTER_MAX = 0.10
"""A larger error of prefill at a measured length is said."""


class FitError(Exception):
    """The engine does not tell or do what a profile needs; the message says what."""


@dataclass(frozen=True, slots=True)
class FitLimits:
    """Bounds on the load. `prompt_tokens`: lengths to try, as far as the other bounds allow."""

    tokens_max: int = 60_000
    seconds_max: float = 180.0
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    prompt_tokens: tuple[int, ...] = (64, 256, 1024, 2048, 4096, 8192)
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Load:
    """What will be sent: prompts of these lengths, `repeats` of each, and batches of short streams."""

    prompt_tokens: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int

    @property
    def tokens(self) -> int:
        """Prompt and output tokens in all."""
        warm_up = WARM_UPS * (round(WARM_WORDS * TOKENS_PER_WORD) + DECODE_TOKENS)
        prefill = self.repeats * sum(tokens + 1 for tokens in self.prompt_tokens) + DECODE_TOKENS
        return warm_up + prefill + (sum(self.batches) + ATTEMPTS_MAX - 1) * (SHORT_TOKENS + DECODE_TOKENS)


def planned_load(limits: FitLimits, largest_tokens: int) -> Load:
    """The largest load within the bounds. `largest_tokens`: what the engine takes at most in one request.

    Raises `FitError` where the bounds leave too little to learn anything from.
    """
    lengths = [tokens for tokens in limits.prompt_tokens if tokens + DECODE_TOKENS + 16 <= largest_tokens]
    batches = list(limits.batches)
    while Load(tuple(lengths), tuple(batches), limits.repeats).tokens > limits.tokens_max:
        is_long = len(lengths) > 2 and limits.repeats * lengths[-1] >= batches[-1] * (
            SHORT_TOKENS + DECODE_TOKENS
        )
        if is_long or (len(batches) == 1 and len(lengths) > 2):
            lengths.pop()
        elif len(batches) > 1:
            batches.pop()
        else:
            break
    load = Load(tuple(lengths), tuple(batches), limits.repeats)
    if len(lengths) < 2 or load.tokens > limits.tokens_max:
        raise FitError(
            f"{limits.tokens_max} tokens and requests of at most {largest_tokens} are too few to fit a profile from: "
            f"at least two prompt lengths and one batch are needed ({load.tokens} tokens)"
        )
    return load


@dataclass(slots=True)
class Fit:
    """What was measured. Times in milliseconds, of the model where a speed was given."""

    model: str
    engine: str
    kv_tokens: int
    max_model_tokens: int
    prefill: PrefillTerms
    decode_base_ms: tuple[tuple[int, float], ...]
    decode_ms_per_context_token: float
    prefill_points: tuple[PrefillPoint, ...]
    running_max: int | None = None
    tokens_sent: int = 0
    seconds: float = 0.0
    remarks: list[str] = field(default_factory=list)


async def fit_engine(
    client: EngineClient,
    limits: FitLimits,
    *,
    model: str | None,
    kv_tokens: int | None,
    seed: int,
    speed: float = 1.0,
) -> Fit:
    """Measure one engine. `speed`: model seconds per second, of an emulated one.

    Raises `EngineError` where it cannot be reached, `FitError` where it does not tell enough.
    """
    chosen, largest_tokens = await _model(client, model)
    status = status_on(await client.get(METRICS_PATH))
    capacity_tokens = kv_tokens or status.capacity_tokens
    if capacity_tokens is None:
        raise FitError("the engine does not tell its KV capacity; say it: --kv-tokens TOKENS")
    largest_tokens = min(largest_tokens or capacity_tokens, capacity_tokens)
    load = planned_load(limits, largest_tokens)
    run = _Run(client, chosen, Prompts(seed), time.perf_counter() + limits.seconds_max, speed * 1000.0)
    await run.warm_up()
    points, long_step = await run.prefill(load)
    steps = await run.decode(load)
    slope = _slope(steps[0], long_step)
    if len({point.tokens for point in points}) < 2:
        raise FitError(
            f"only one prompt length could be measured in {limits.seconds_max:g} s; allow more: --seconds"
        )
    base = _base(steps, slope)
    prefill = fit_prefill(points)
    if prefill.error > SCATTER_MAX:
        run.remarks.append(
            f"the times to the first token scatter by {100 * prefill.error:.0f} %: was the engine or its machine busy with "
            "something else? Measure again before you rely on this"
        )
    return Fit(
        model=chosen,
        engine=status.engine,
        kv_tokens=capacity_tokens,
        max_model_tokens=largest_tokens,
        prefill=prefill,
        decode_base_ms=base,
        decode_ms_per_context_token=slope,
        prefill_points=tuple(points),
        running_max=run.running_max,
        tokens_sent=run.tokens_sent,
        seconds=run.seconds,
        remarks=run.remarks,
    )


async def _model(client: EngineClient, model: str | None) -> tuple[str, int | None]:
    for entry in models_on(await client.get(MODELS_PATH)):
        if model is None or entry.get("id") == model:
            length = entry.get("max_model_len")
            return str(entry.get("id")), length if isinstance(length, int) else None
    if model is None:
        raise FitError("the engine names no model; say which: --model NAME")
    return model, None


@dataclass(frozen=True, slots=True)
class Step:
    """Milliseconds of a decoding step of `batch` requests with `context_tokens` in all."""

    batch: int
    context_tokens: float
    ms: float


@dataclass(slots=True)
class _Run:
    """The measurement: sends, counts, and stops at its end. `scale`: milliseconds of the model per second of the clock."""

    client: EngineClient
    model: str
    prompts: Prompts
    ends_at: float
    scale: float
    tokens_per_word: float = TOKENS_PER_WORD
    tokens_sent: int = 0
    running_max: int | None = None
    remarks: list[str] = field(default_factory=list)
    began_at: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began_at

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self.ends_at

    async def warm_up(self) -> None:
        """A first request is slow in many ways; its token count tells how long a word is."""
        for _ in range(WARM_UPS):
            stream = await self._ask(WARM_WORDS, DECODE_TOKENS)
            if not stream.prompt_tokens:
                raise FitError(
                    "the engine's streams carry no usage (include_usage): lengths would be guesses"
                )
            self.tokens_per_word = stream.prompt_tokens / WARM_WORDS

    async def prefill(self, load: Load) -> tuple[list[PrefillPoint], Step | None]:
        """Times to the first token, the shortest of each length, and a step behind the longest prompt."""
        points: list[PrefillPoint] = []
        long_step: Step | None = None
        for tokens in load.prompt_tokens:
            streams = []
            for turn in range(load.repeats):
                if self.over:
                    self.remarks.append(f"time ran out before prompts of {tokens} tokens were done")
                    break
                is_last = tokens == load.prompt_tokens[-1] and turn == 0
                streams.append(
                    await self._ask(round(tokens / self.tokens_per_word), DECODE_TOKENS if is_last else 1)
                )
                if is_last:
                    long_step = self._step([streams[-1]])
            measured = [
                PrefillPoint(
                    s.prompt_tokens, s.cached_tokens or 0, (s.pieces_at[0] - s.asked_at) * self.scale
                )
                for s in streams
                if s.pieces_at
            ]
            if measured:
                points.append(min(measured, key=lambda point: point.ms))
        return points, long_step

    async def decode(self, load: Load) -> list[Step]:
        """The time of a step by batch, up to what the engine runs together."""
        steps: list[Step] = []
        for batch in load.batches:
            if self.over and steps:
                self.remarks.append(f"time ran out before a batch of {batch}")
                break
            step = await self._together(batch)
            for _ in range(ATTEMPTS_MAX - 1 if batch == 1 else 0):
                step = step or await self._together(batch)
            if step is None:
                self._not_together(batch, steps)
                break
            steps.append(step)
        if not steps:
            raise FitError("streams of a single request came in one piece: the time of a step cannot be told")
        return steps

    async def _together(self, batch: int) -> Step | None:
        """A step of so many streams at once; None where they did not all run at one time."""
        words = max(1, round(SHORT_TOKENS / self.tokens_per_word))
        return self._step(await asyncio.gather(*(self._ask(words, DECODE_TOKENS) for _ in range(batch))))

    def _not_together(self, batch: int, steps: list[Step]) -> None:
        """What that says of the engine: nothing where a stream may be over before the last of the others has begun."""
        if not steps:
            return
        stream_seconds = DECODE_TOKENS * steps[-1].ms / self.scale
        if stream_seconds < STREAM_SECONDS_MIN:
            self.remarks.append(
                f"a stream of {DECODE_TOKENS} tokens takes {1000 * stream_seconds:.0f} ms by the clock, too short to tell "
                f"whether {batch} run together: max_running was not measured (--max-running says it; an emulated replica "
                "tells at a lower --speed)"
            )
        else:
            self.running_max = steps[-1].batch
            self.remarks.append(f"{batch} requests did not run together: at most about {self.running_max} do")

    def _step(self, streams: list[Stream]) -> Step | None:
        seconds = step_ms([(stream.pieces_at, stream.output_tokens) for stream in streams])
        if seconds is None:
            return None
        context = sum(stream.prompt_tokens + stream.output_tokens / 2 for stream in streams)
        return Step(len(streams), context, seconds * self.scale)

    async def _ask(self, words: int, output_tokens: int) -> Stream:
        request = completion(self.model, self.prompts.fresh(words), output_tokens)
        stream = await self.client.stream(COMPLETIONS, request)
        if not stream.pieces_at:
            raise EngineError("a stream had no output")
        self.tokens_sent += stream.prompt_tokens + stream.output_tokens
        return stream


def _slope(short: Step, long: Step | None) -> float:
    """b: what one more token of context adds to a step; 0 where that does not show."""
    if long is None or long.context_tokens <= short.context_tokens:
        return 0.0
    return max(0.0, (long.ms - short.ms) / (long.context_tokens - short.context_tokens))


def _base(steps: list[Step], slope: float) -> tuple[tuple[int, float], ...]:
    """a(B): the steps without what their contexts cost; a larger batch is never faster."""
    base: list[tuple[int, float]] = []
    for step in steps:
        ms = max(step.ms - slope * step.context_tokens, 0.001, base[-1][1] if base else 0.0)
        base.append((step.batch, ms))
    return tuple(base)
