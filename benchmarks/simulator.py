"""Speed and memory of whole simulated runs on one core: 500 sessions, 4 replicas, 96 workers, checkers on.

usage: python benchmarks/simulator.py [--policies NAME,...] [--rounds N] [--million] [--json OUT]
Targets: 20,000 turns/s under round-robin, 2,000 under tao, 1,000,000 turns in one run within 8 GiB (`--million`).
The trace is the one of 500 SWE-bench sessions where the folder of traces lies beside the project, else the sample that
comes with tao, repeated under new names. Seconds are of the processor, the best of several rounds; the yardstick is
printed as well, since machines differ: how long ten million additions take.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from tao.enginemodel import load_profile
from tao.sim.run import RunSpec, run
from tao.sim.workload import ClosedLoop
from tao.traces import TraceSession, read_trace, sample_path
from tao.traces.model import renamed

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
TRACE = TRACES / "mini_swe_agent_swebench_verified.jsonl.gz"
SESSIONS = 500
WORKERS = 96
MILLION = 1_010_000


def sessions_of(count: int) -> tuple[str, list[TraceSession]]:
    """The 500 sessions, or as many made by repeating what there is."""
    path = TRACE if TRACE.exists() else sample_path()
    known = [session for session in read_trace(path) if session.parent is None]
    return path.name, repeated(known, count)


def repeated(known: Sequence[TraceSession], count: int) -> list[TraceSession]:
    return [renamed(known[n % len(known)], f"{n}-{known[n % len(known)].session_id}") for n in range(count)]


def yardstick_seconds() -> float:
    started = time.process_time()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - started


def measure(policy: str, sessions: Sequence[TraceSession], rounds: int) -> dict[str, object]:
    spec = RunSpec(policy, load_profile("qwen3-32b-tp2-h100"), 4, ClosedLoop(WORKERS), ("trace",))
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        result = run(spec, {"trace": sessions})
        seconds.append(time.process_time() - started)
    assert not result.violations, result.violations
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "policy": policy,
        "turns": result.summary.turns,
        "seconds": round(min(seconds), 3),
        "turns_per_second": round(result.summary.turns / min(seconds)),
        "plans": result.planner.plans,
        "peak_memory_mib": round(peak_mib),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the simulator.")
    parser.add_argument("--policies", default="round-robin,tao")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--million", action="store_true", help="one run of a million turns, for its memory")
    parser.add_argument("--json", dest="json_path", type=Path)
    options = parser.parse_args()
    name, sessions = sessions_of(SESSIONS)
    if options.million:
        turns = sum(len(session.turns) for session in sessions)
        sessions = repeated(sessions, -(-MILLION * SESSIONS // turns))
    rows = [measure(policy, sessions, options.rounds) for policy in options.policies.split(",")]
    report = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "ten_million_additions_seconds": round(yardstick_seconds(), 3),
        "trace": name,
        "sessions": len(sessions),
        "workers": WORKERS,
        "runs": rows,
    }
    text = json.dumps(report, indent=2)
    if options.json_path is not None:
        options.json_path.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
