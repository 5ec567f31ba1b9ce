"""The live benchmark: routers of other projects and TAO in front of the same replicas, driven by the same client.

usage: python -m benchmarks.live [routers|engines] [options]   (`make bench-live` runs both)
`routers`: what each adds to a request, before a fake engine; a minute or two. `engines`: recorded sessions on two real
vLLM replicas short of memory; an hour or two, never in CI.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench
from benchmarks.live import routers
from benchmarks.live.peers import Peer, chosen
from benchmarks.live.processes import ServiceError

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROUTER_PEERS = (
    "round-robin",
    "vllm-router-round-robin",
    "vllm-router-consistent-hash",
    "vllm-router-cache-aware",
    "sglang-router-round-robin",
    "tao-round-robin",
    "tao",
)


def plain(value: Any) -> Any:
    """Dataclasses as JSON objects."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def write(path: Path, result: dict[str, Any]) -> None:
    """A result with what a reader must know of a figure: when, on what, of which code."""
    heading = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": bench.processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "load_average": os.getloadavg()[1],
        "commit": bench.commit(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**heading, **result}, indent=1, default=plain) + "\n")
    print(f"written: {path}", flush=True)


def run_routers(options: argparse.Namespace, peers: Sequence[Peer]) -> None:
    """Measure, print the table, write the JSON file."""
    rounds = 2 if options.quick else options.repeats
    print(
        f"routers: {rounds} rounds of {len(peers) + 1} paths, about {4 * rounds * (len(peers) + 1)} s",
        flush=True,
    )
    figures = routers.measure(peers, rounds)
    print(routers.table(figures), flush=True)
    result = {"rounds": rounds, "medians": routers.medians_of(figures), "verdicts": routers.verdicts(figures)}
    write(options.out / "live-routers.json", {**result, "rounds_of_each": figures})


def main() -> int:
    """0 when all was measured, 1 when a process failed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", nargs="?", choices=("all", "routers", "engines"), default="all")
    parser.add_argument("--repeats", type=int, default=5, help="alternating repeats (default: 5)")
    parser.add_argument("--peers", help="comma-separated names; default: all")
    parser.add_argument("--quick", action="store_true", help="a smoke run: it works, its figures say nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    options = parser.parse_args()
    try:
        names = options.peers.split(",") if options.peers else ROUTER_PEERS
        run_routers(options, chosen(names))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
