"""Runs the engine model in real time: one timer, and a stream of progress for each request.

The model decides what happens when; this loop only asks it at the right wall-clock times and tells the
handlers. Its own lateness is measured in model seconds: `Lag` compares the time of each event with the
time it was delivered. It must not know HTTP, dialects or texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tao.enginemodel import EngineModel, Finished, FirstToken, Request

REQUESTS_MAX = 10_000
TICK_SECONDS = 0.02  # wall clock: how often running streams are told of new tokens
LAG_LOG_SECONDS = 5.0  # wall clock: how often lag is logged at most
LAG_TOLERATED = 0.05  # of a request's model duration
LAG_TOLERATED_WALL_SECONDS = 0.05

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Lag:
    """How late finished requests were delivered, in model seconds, and how long they took in the model."""

    last_seconds: float = 0.0
    max_seconds: float = 0.0
    sum_seconds: float = 0.0
    model_seconds: float = 0.0
    requests: int = 0

    def share(self) -> float:
        """Lateness over duration, all finished requests together."""
        return self.sum_seconds / self.model_seconds if self.model_seconds > 0 else 0.0


class Progress:
    """What a handler waits on. `generated` tokens are there; `done` once all are; `lost` when the engine
    died.
    """

    __slots__ = (
        "_wake",
        "arrived_at",
        "cached_tokens",
        "done",
        "first_at",
        "generated",
        "lost",
        "wants_tokens",
    )

    def __init__(self, arrived_at: float, *, wants_tokens: bool) -> None:
        self._wake = asyncio.Event()
        self.arrived_at = arrived_at
        self.wants_tokens = wants_tokens
        self.generated = 0
        self.cached_tokens = 0
        self.first_at = 0.0
        self.done = False
        self.lost = False

    def notify(self) -> None:
        self._wake.set()

    async def changed(self) -> None:
        """Wait until more is there; changes while nobody waited count once."""
        await self._wake.wait()
        self._wake.clear()

    async def ended(self) -> bool:
        """Wait for the end: True when all tokens are there, False when the engine died."""
        while not (self.done or self.lost):
            await self.changed()
        return self.done


class EngineLoop:
    """Owns the model and the clock: model time is wall-clock time since the start, times `speed`."""

    def __init__(self, model: EngineModel, speed: float, after_step: Callable[[], None]) -> None:
        self.model = model
        self.lag = Lag()
        self.finished_reasons: dict[str, int] = {"stop": 0, "length": 0, "tool_calls": 0, "abort": 0}
        self.first_token_seconds: list[float] = []  # since the last scrape, bounded
        self._speed = speed
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._after_step = after_step
        self._live: dict[str, Progress] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._next_tick = 0.0
        self._logged_at = 0.0
        self._closed = False

    def now(self) -> float:
        """Model time in seconds."""
        return (self._loop.time() - self._start) * self._speed

    def submit(self, request: Request, *, wants_tokens: bool) -> Progress:
        """Hand a request to the model. Raises RequestRefusedError; asyncio.QueueFull at the bound."""
        if len(self._live) >= REQUESTS_MAX:
            raise asyncio.QueueFull
        now = self.now()
        self.model.submit(now, request)
        progress = self._live[request.id] = Progress(now, wants_tokens=wants_tokens)
        self._pump()
        return progress

    def abort(self, request_id: str) -> None:
        """Drop a request whose client has left; none that has finished."""
        progress = self._live.pop(request_id, None)
        if progress is not None and not self._closed:
            self.model.abort(self.now(), request_id)
            self.finished_reasons["abort"] += 1
            self._pump()

    def flush(self) -> bool:
        done = self.model.flush(self.now())
        self._pump()
        return done

    def restart(self) -> None:
        """The engine loses everything; its requests end with `lost`."""
        self.model.restart(self.now())
        live, self._live = self._live, {}
        for progress in live.values():
            progress.lost = True
            progress.notify()
        self._pump()

    def settle(self) -> None:
        """Bring the model up to now."""
        self._pump()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for progress in self._live.values():
            progress.lost = True
            progress.notify()
        self._live.clear()

    # ---- the timer ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Bring the model up to now, tell the handlers, arm the timer."""
        if self._closed:
            return
        now = self.now()
        for event in self.model.advance(now):
            progress = self._live.get(event.request_id)
            if progress is None:
                continue
            if isinstance(event, FirstToken):
                progress.cached_tokens = event.cached_tokens
                progress.first_at = event.at
                if len(self.first_token_seconds) < REQUESTS_MAX:
                    self.first_token_seconds.append(event.at - progress.arrived_at)
                progress.generated = max(progress.generated, 1)
                if progress.wants_tokens:
                    progress.notify()
            elif isinstance(event, Finished):
                del self._live[event.request_id]
                progress.generated = event.output_tokens
                progress.done = True
                progress.notify()
                self._count_lag(self.now() - event.at, event.at - progress.arrived_at)
        wall = self._loop.time()
        if wall >= self._next_tick:
            self._tick()
            self._next_tick = wall + TICK_SECONDS
        self._after_step()
        self._arm(wall)

    def _tick(self) -> None:
        for request_id, progress in self._live.items():
            if progress.wants_tokens and progress.generated:
                generated = self.model.generated(request_id)
                if generated > progress.generated:
                    progress.generated = generated
                    progress.notify()

    def _arm(self, wall: float) -> None:
        due = self.model.next_event_at()
        if due is None:
            return
        at = min(self._start + due / self._speed, max(self._next_tick, wall))
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None  # it may fire a little early, so its time does not tell that it has fired
        self._pump()

    def _count_lag(self, late_seconds: float, model_seconds: float) -> None:
        lag = self.lag
        lag.last_seconds = late_seconds
        lag.max_seconds = max(lag.max_seconds, late_seconds)
        lag.sum_seconds += late_seconds
        lag.model_seconds += model_seconds
        lag.requests += 1
        wall = self._loop.time()
        tolerated = max(LAG_TOLERATED * model_seconds, LAG_TOLERATED_WALL_SECONDS * self._speed)
        if late_seconds > tolerated and wall - self._logged_at > LAG_LOG_SECONDS:
            self._logged_at = wall
            log.warning(
                "behind model time",
                late_model_seconds=round(late_seconds, 3),
                request_model_seconds=round(model_seconds, 3),
                share_so_far=round(lag.share(), 4),
            )
