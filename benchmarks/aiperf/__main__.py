"""`make aiperf`: aiperf, unmodified, through `tao serve` on a real vLLM, and its figures beside the gateway's own.

Two runs, each with a gateway of its own: conversations of several turns that name themselves by `--session-header`, and a
trace in Weka's form. A request that failed ends the run with exit code 1. By hand; it takes two minutes and more.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.aiperf.measured import measured_turns
from benchmarks.aiperf.weka import write_traces
from tao.record.summary import RunSummary, summarise
from tests.engine.processes import ServiceError, free_port, run_bounded, service, tail
from tests.engine.vllm_replica import ReplicaOptions, VllmReplica, start_replica

ROOT = Path(__file__).resolve().parents[2]
AIPERF = ROOT / ".venvs" / "aiperf" / "bin" / "aiperf"
RUN_SECONDS_MAX = 180.0
CONVERSATIONS, TURNS = 6, 3
CONCURRENCY = 3
TRACES, TRACE_TURNS = 4, 4


@dataclass(frozen=True, slots=True)
class Run:
    """One way to use aiperf. `requests`: how many it has to send."""

    name: str
    requests: int
    arguments: tuple[str, ...]


class AiperfError(RuntimeError):
    """aiperf ended with an error or reported failed requests; the message has the end of its output."""


def runs(scratch: Path) -> list[Run]:
    """The two of them; the trace is written to `scratch`."""
    multi_turn = (
        *("--conversation-num", str(CONVERSATIONS), "--concurrency", str(CONCURRENCY)),
        *("--conversation-turn-mean", str(TURNS), "--conversation-turn-stddev", "0"),
        *("--isl", "300", "--osl", "16"),
    )
    traced = write_traces(scratch / "weka", TRACES, TRACE_TURNS)
    # Not by --request-count: one that it cuts before its sub-agent starts may keep aiperf 0.13.0 waiting for ever.
    weka = (
        *("--custom-dataset-type", "weka-trace", "--input-file", str(scratch / "weka")),
        *("--conversation-num", str(TRACES), "--concurrency", str(CONCURRENCY)),
    )
    return [Run("multi-turn", CONVERSATIONS * TURNS, multi_turn), Run("weka-trace", traced, weka)]


def aiperf_command(run: Run, url: str, tokenizer: Path, scratch: Path) -> list[str]:
    """In a clean environment: only PATH is the caller's."""
    home = f"HOME={scratch}"
    return [
        *("env", "-i", f"PATH={os.environ['PATH']}", home, "NO_PROXY=127.0.0.1"),
        *(str(AIPERF), "profile", "--model", "tiny", "--tokenizer", str(tokenizer), "--url", url),
        *("--endpoint-type", "chat", "--streaming", "--session-header", "X-Session-ID"),
        *("--extra-inputs", "ignore_eos:true", "--random-seed", "1", "--use-server-token-count"),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
        *("--output-artifact-dir", str(scratch / run.name), *run.arguments),
    ]


def perform(run: Run, replica: VllmReplica, scratch: Path) -> tuple[dict[str, Any], RunSummary]:
    """aiperf's own figures, and those of the gateway's record. Raises AiperfError."""
    url = f"http://127.0.0.1:{free_port()}"
    log = scratch / f"{run.name}.events.jsonl"
    serve = [sys.executable, "-m", "tao", "serve", "--port", url.rpartition(":")[2]]
    serve += ["--replica", replica.url, "--record-log", str(log)]
    output = scratch / f"{run.name}.out"
    with service(serve, url, scratch / f"{run.name}.serve.log", ready_path="/readyz"):
        command = aiperf_command(run, url, replica.log_path.parent / "model", scratch)
        code = run_bounded(command, output, RUN_SECONDS_MAX)
    if code != 0:
        raise AiperfError(f"aiperf ended with code {code}:\n{tail(output)}")
    told: dict[str, Any] = json.loads((scratch / run.name / "profile_export_aiperf.json").read_text())
    if told.get("error_summary"):
        raise AiperfError(f"{run.name}: aiperf saw failed requests: {told['error_summary']}")
    return told, summarise(measured_turns(log), workers=CONCURRENCY)


def figure(told: dict[str, Any], name: str, statistic: str = "avg") -> float | None:
    value = (told.get(name) or {}).get(statistic)
    return None if value is None else float(value)


def table(run: Run, told: dict[str, Any], ours: RunSummary) -> list[str]:
    """The rows of one run, as Markdown."""
    cached = figure(told, "overall_usage_prompt_cache_read_pct")
    hit_rate = ours.prefix_hit_rate
    pairs: list[tuple[str, float | None, float | None]] = [
        ("requests", figure(told, "request_count"), float(ours.turns)),
        ("failed requests", figure(told, "error_request_count") or 0.0, float(ours.turns_failed)),
        ("sessions", None, float(ours.sessions)),
        (
            "time to first token, mean, ms",
            figure(told, "time_to_first_token"),
            milliseconds(ours.ttft_seconds.mean),
        ),
        (
            "time to first token, p50, ms",
            figure(told, "time_to_first_token", "p50"),
            milliseconds(ours.ttft_seconds.p50),
        ),
        (
            "time to first token, p90, ms",
            figure(told, "time_to_first_token", "p90"),
            milliseconds(ours.ttft_seconds.p90),
        ),
        ("prompt tokens found in the cache, %", cached, None if hit_rate is None else 100 * hit_rate),
    ]
    return [f"| {run.name} | {what} | {number(theirs)} | {number(own)} |" for what, theirs, own in pairs]


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1_000 * seconds


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run both and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aiperf", description=__doc__)
    parser.add_argument("--keep", type=Path, help="leave logs and artifacts in this folder")
    options = parser.parse_args(argv)
    if not AIPERF.exists():
        print(f"{AIPERF} does not exist: run `make aiperf`, which installs it", file=sys.stderr)
        return 2
    try:
        return compare(options.keep)
    except (AiperfError, ServiceError) as error:
        print(error, file=sys.stderr)
        return 1


def compare(kept: Path | None) -> int:
    """Both runs before one vLLM, logs in `kept` if given; the exit code. Raises AiperfError and ServiceError."""
    with contextlib.ExitStack() as stack:
        scratch = Path(kept or stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        replica = stack.enter_context(start_replica(scratch / "vllm", ReplicaOptions(blocks=2048)))
        print("| run | figure | aiperf | tao serve |\n|---|---|---:|---:|")
        for run in runs(scratch):
            told, ours = perform(run, replica, scratch)
            print("\n".join(table(run, told, ours)), flush=True)
            if ours.turns != run.requests or ours.turns_failed:
                print(f"{run.name}: {run.requests} requests expected, {ours}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
