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
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench
from benchmarks.live import engines, page, report, routers
from benchmarks.live.calibration import credit_table
from benchmarks.live.earlier import done, earlier_rows
from benchmarks.live.peers import PEERS, Peer, chosen
from tests.engine.processes import ServiceError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LOGS = ROOT / "build" / "live"
REPEATS = 5
ROUTER_PEERS = (
    "round-robin",
    "vllm-router-round-robin",
    "vllm-router-consistent-hash",
    "vllm-router-cache-aware",
    "sglang-router-round-robin",
    "tao-round-robin",
    "tao",
)
ENGINE_PEERS = (
    "round-robin",
    "vllm-router-cache-aware",
    "vllm-router-consistent-hash",
    "vllm-router-sticky",
    "vllm-router-programs",
    "sglang-router-cache-aware",
    "tao-round-robin",
    "tao",
    "tao-ends-told",
)
QUICK = {
    "sessions": 6,
    "turns_max": 8,
    "concurrency": 5,
    "peak_tokens": 800,
    "kv_tokens": 1_536,
    "window_tokens": 1_024,
}
"""As short of memory as a whole run, and a tenth of its tokens."""


def now() -> str:
    """The present moment to the second, for results."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(path: Path, result: dict[str, Any]) -> None:
    """A result with what a reader must know of a figure: when, on what, of which code."""
    heading = {
        "date": now(),
        "machine": {
            "processor": bench.processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "load_average": os.getloadavg()[1],
        "commit": bench.commit(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**heading, **result}, indent=1, default=dataclasses.asdict) + "\n")


def is_published(options: argparse.Namespace) -> bool:
    """Whether the figures go into the documentation: a whole run as its page describes it, kept with the project."""
    changed = (options.peers, options.sessions, options.concurrency, options.kv_tokens)
    whole = options.repeats >= REPEATS and not options.quick and all(one is None for one in changed)
    return whole and bool(options.out == RESULTS)


def provenance(runs: str) -> str:
    """When and on what, as a sentence under a heading."""
    return (
        f"{now()[:10]}, commit `{bench.commit()}`, {bench.processor()}, {os.cpu_count()} cores, load average "
        f"{os.getloadavg()[2]:.1f} in the last quarter of an hour; medians of {runs} with their intervals."
    )


def run_routers(options: argparse.Namespace, peers: Sequence[Peer]) -> None:
    """Measure, print the table, write the JSON file."""
    rounds = 2 if options.quick else options.repeats
    print(
        f"routers: {rounds} rounds of {len(peers) + 1} paths, about {4 * rounds * (len(peers) + 1)} s",
        flush=True,
    )
    figures = routers.measure(peers, rounds, options.logs)
    print(routers.table(figures), flush=True)
    result = {"rounds": rounds, "medians": routers.medians_of(figures), "verdicts": routers.verdicts(figures)}
    write(options.out / "live-routers.json", {**result, "rounds_of_each": figures})
    if is_published(options):
        page.renew("routers", f"{provenance(f'{rounds} rounds')}\n\n{routers.table(figures)}")


def run_engines(options: argparse.Namespace, peers: Sequence[Peer]) -> None:
    """Say what it will take, run, and write the JSON file anew after each run, so that a stopped one keeps its figures."""
    given = {"sessions": options.sessions, "concurrency": options.concurrency, "kv_tokens": options.kv_tokens}
    changed = {name: value for name, value in given.items() if value is not None}
    config = engines.LiveConfig(**{**(QUICK if options.quick else {}), **changed})
    repeats = 1 if options.quick else options.repeats
    runs = repeats * len(peers)
    out = options.out / "live-engines.json"
    rows = earlier_rows(out, config) if options.resume else []
    made = frozenset(map(done, rows))
    left = sum((repeat, peer.name) not in made for repeat in range(repeats) for peer in peers)
    run, usual, worst = engines.estimate(config, left)
    print(
        f"engines: {left} runs ({runs - left} made earlier) of {run.sessions} sessions, {run.turns} turns, "
        f"{run.prompt_tokens} prompt tokens (new: {run.new_prompt_tokens}), {run.output_tokens} output tokens; on an idle "
        f"machine about {usual / 60:.0f} min, without any cache hit {worst / 60:.0f} min",
        flush=True,
    )

    def on_row(row: dict[str, Any]) -> None:
        rows.append({**row, "date": now(), "commit": bench.commit()})
        print(f"{len(rows) - len(made)}/{left} {report.row_text(row)}", flush=True)
        result = {"config": config, "totals": run, "repeats": repeats, "medians": report.medians(rows)}
        write(out, {**result, "comparisons": report.comparisons(rows), "rows": rows})

    engines.measure(config, peers, repeats, options.logs, on_row, made)
    tables = "\n".join(one for one in (report.table(rows), credit_table(rows)) if one)
    print(tables, flush=True)
    out.with_suffix(".svg").write_text(report.plot(rows))
    if is_published(options):
        page.PLOT.write_text(report.plot(rows))
        shown = "![Session latency, time to first token and hit rate of each](../images/live-engines.svg)"
        page.renew("engines", f"{provenance(f'{repeats} repeats')}\n\n{tables}\n{shown}")


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with 2 for one that is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.live", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("part", nargs="?", choices=("all", "routers", "engines"), default="all")
    parser.add_argument(
        "--repeats", type=positive, default=REPEATS, help=f"alternating repeats (default: {REPEATS})"
    )
    parser.add_argument("--peers", help=f"comma-separated names, of {', '.join(PEERS)}; default: most")
    parser.add_argument("--sessions", type=positive, help="sessions of each run on engines")
    parser.add_argument("--concurrency", type=positive, help="sessions at a time")
    parser.add_argument("--kv-tokens", type=positive, help="KV cache of each replica")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="on engines: keep the runs of the file that is there, make the others",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: it works, its figures say nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files and the plot")
    parser.add_argument("--logs", type=Path, default=LOGS, help="folder for the logs of all processes")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all was measured, 1 when a process failed, 2 for bad input, 130 after Ctrl-C."""
    options = options_of(arguments)
    busy = os.getloadavg()[0]
    if busy > 1.0:
        print(
            f"this machine is busy (load average {busy:.1f}): all takes longer, and times say less",
            flush=True,
        )
    try:
        named = options.peers.split(",") if options.peers else None
        if options.part != "engines":
            run_routers(options, chosen(named or ROUTER_PEERS))
        if options.part != "routers":
            run_engines(options, chosen(named or ENGINE_PEERS))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the JSON file has the runs that had ended", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended too
    sys.exit(main())
