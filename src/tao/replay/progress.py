"""How far a replay is: the running totals, the measurements so far, and one example of each kind of failure.

It must not know how turns are run or shown.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tao.record.measure import TurnMeasurement
from tao.traces.model import TraceSession


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Token counts are sums over finished turns, as the endpoint reported them."""

    at_seconds: float
    sessions: int
    sessions_done: int
    sessions_failed: int
    turns: int
    turns_done: int
    turns_in_flight: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


OnProgress = Callable[[ReplayProgress], None]


class Tally:
    """Counts while the replay runs, and reports after each change."""

    def __init__(
        self, sessions: Sequence[TraceSession], now: Callable[[], float], on_progress: OnProgress | None
    ) -> None:
        self.measurements: list[TurnMeasurement] = []
        self.failures: dict[str, str] = {}
        self._now = now
        self._on_progress = on_progress
        self._sessions = len(sessions)
        self._turns = sum(len(session.turns) for session in sessions)
        self._sessions_done = self._sessions_failed = self._in_flight = 0
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0

    @contextmanager
    def turn_in_flight(self) -> Iterator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def attempt_failed(self, kind: str, detail: str) -> None:
        self.failures.setdefault(kind, detail)

    def turn_ended(self, measured: TurnMeasurement) -> None:
        self.measurements.append(measured)
        self._prompt_tokens += measured.prompt_tokens or 0
        self._cached_tokens += measured.cached_tokens or 0
        self._output_tokens += measured.output_tokens or 0
        self._report()

    def session_done(self) -> None:
        self._sessions_done += 1
        self._report()

    def session_failed(self) -> None:
        self._sessions_failed += 1
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                ReplayProgress(
                    at_seconds=self._now(),
                    sessions=self._sessions,
                    sessions_done=self._sessions_done,
                    sessions_failed=self._sessions_failed,
                    turns=self._turns,
                    turns_done=len(self.measurements),
                    turns_in_flight=self._in_flight,
                    prompt_tokens=self._prompt_tokens,
                    cached_tokens=self._cached_tokens,
                    output_tokens=self._output_tokens,
                )
            )
