"""The runs on real engines: every peer in turn within each repeat, the same sessions, client and order, empty caches.

A peer is started anew for each run. All runs of a repeat replay the same sessions in the same order, so that peers can
be compared in pairs. A run that fails is a row with its error; the others go on. It must not know how figures are shown.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.live import workload
from benchmarks.live.calibration import credit_of
from benchmarks.live.peers import Peer
from benchmarks.live.replicas import counters, flush, get, replicas, warm_up
from tao.traces import TraceSession, read_trace, sample_path, write_native
from tests.engine.processes import ServiceError, run_bounded, service, tail
from tests.engine.vllm_replica import VllmReplica

TURN_SECONDS_MAX = 300.0
RUN_SECONDS_MAX = 1_500.0
BETWEEN_RUNS_SECONDS = 8.0
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """`kv_tokens` of each of the two replicas; `window_tokens`: the longest prompt with its answer."""

    sessions: int = 12
    turns_max: int = 10
    peak_tokens: int = 2_400
    tool_factor: float = 1.0
    concurrency: int = 8
    kv_tokens: int = 4_096
    window_tokens: int = 3_328

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.sessions < 1:
            raise ValueError("at least one session at a time")
        if self.window_tokens >= self.kv_tokens:
            raise ValueError(
                f"a window of {self.window_tokens} tokens needs more than {self.kv_tokens} KV tokens"
            )
        if self.peak_tokens > 0.8 * self.window_tokens:
            raise ValueError(
                f"sessions of {self.peak_tokens} tokens may outgrow a window of {self.window_tokens}: "
                "random answers can be longer when they are read again; stay below 80 %"
            )

    @property
    def scale(self) -> workload.Scale:
        """How the recorded sessions are made smaller."""
        return workload.Scale(self.peak_tokens, self.turns_max, self.tool_factor)


def sessions_of(config: LiveConfig) -> list[TraceSession]:
    """The scaled sessions of every run."""
    return workload.scaled(workload.recorded(list(read_trace(sample_path())), config.sessions), config.scale)


def estimate(config: LiveConfig, runs: int) -> tuple[workload.Totals, float, float]:
    """Totals of a run; seconds of all runs at a usual hit rate and without any hit."""
    run = workload.totals(sessions_of(config))
    usual, worst = (
        START_SECONDS
        + runs
        * (
            BETWEEN_RUNS_SECONDS
            + workload.run_seconds(run, replicas=2, concurrency=config.concurrency, hit_rate=rate)
        )
        for rate in (workload.HIT_RATE_TYPICAL, 0.0)
    )
    return run, usual, worst


def measure(
    config: LiveConfig,
    peers: Sequence[Peer],
    repeats: int,
    logs: Path,
    on_row: Callable[[dict[str, Any]], None],
    done: frozenset[tuple[int, str]] = frozenset(),
) -> None:
    """Run all but the (repeat, peer) in `done`, `on_row` after each. Raises ServiceError when the engines fail."""
    logs.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with replicas(logs, kv_tokens=config.kv_tokens, window_tokens=config.window_tokens) as engines:
        chars_per_token = warm_up(engines)
        print(f"two replicas up after {time.monotonic() - started:.0f} s", flush=True)
        for repeat in range(repeats):
            trace = logs / f"sessions-{repeat}.jsonl"
            write_native(trace, workload.ordered(sessions_of(config), repeat))
            first = repeat % len(peers)
            # Each repeat begins with another peer, so that none always follows the same neighbour.
            for peer in (*peers[first:], *peers[:first]):
                if (repeat, peer.name) in done:
                    continue
                flush(engines)
                run = _Run(config, peer, repeat, trace, chars_per_token, logs / f"{repeat}-{peer.name}")
                on_row(run.row(engines))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of one peer. Its logs and pages are files that begin with `stem`."""

    config: LiveConfig
    peer: Peer
    repeat: int
    trace: Path
    chars_per_token: float
    stem: Path

    def row(self, engines: Sequence[VllmReplica]) -> dict[str, Any]:
        row: dict[str, Any] = {
            "peer": self.peer.name,
            "repeat": self.repeat,
            "load_average": os.getloadavg()[0],
        }
        before = counters(engines)
        try:
            summary = self._replayed(engines)
        except ServiceError as error:
            return {**row, "error": str(error)}
        counted = counters(engines).since(before)
        return {
            **row,
            "engine_hit_rate": counted.hit_rate,
            "engine_query_tokens": counted.query_tokens,
            "engine_hit_tokens": counted.hit_tokens,
            "preemptions": counted.preemptions,
            "replay": summary,
            "credit": self._credit(),
        }

    def _replayed(self, engines: Sequence[VllmReplica]) -> dict[str, Any]:
        launch = self.peer.launch([engine.url for engine in engines], self.config.kv_tokens)
        started = service(launch.command, launch.url, self._file("router.log"), ready_path=launch.ready_path)
        with started as running:
            result, log = self._file("replay.json"), self._file("replay.log")
            result.unlink(missing_ok=True)
            self._file("state").unlink(missing_ok=True)
            code = run_bounded(self._client(running.url, engines[0].model, result), log, RUN_SECONDS_MAX)
            if launch.state_path is not None:
                with suppress(OSError):
                    self._file("state").write_bytes(get(running.url + launch.state_path))
        if code != 0:
            raise ServiceError(f"the client ended with code {code}:\n{tail(log)}")
        summary: dict[str, Any] = json.loads(result.read_text())
        summary["trace"] = self.trace.name  # where it lies on this machine is nobody's business
        if summary["sessions_failed"]:
            raise ServiceError(
                f"{summary['sessions_failed']} sessions failed: {summary['errors']}\n{tail(log)}"
            )
        return summary

    def _credit(self) -> dict[str, dict[str, float]]:
        """What `tao serve` expected of the caches; of other peers nothing is known."""
        path = self._file("state")
        return credit_of(path.read_text()) if self.peer.is_ours and path.exists() else {}

    def _client(self, url: str, model: str, result: Path) -> list[str]:
        config = self.config
        return [
            *(sys.executable, "-m", "tao", "replay", str(self.trace), "--target", url, "--model", model),
            *(
                "--concurrency",
                str(config.concurrency),
                "--run-id",
                f"r{self.repeat}-",
                "--seed",
                str(self.repeat),
            ),
            *("--chars-per-token", f"{self.chars_per_token:.4f}", "--timeout", f"{TURN_SECONDS_MAX:g}"),
            *("--json", str(result), *self.peer.client_options),
        ]

    def _file(self, suffix: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{suffix}")
