"""What each router adds: first byte at one stream, requests per second at 32, before one fake engine.

The engine, the load client and the rounds are those of `benchmarks/http_path.py`. Routers are measured in turn within
each round, so that a machine that changes its speed harms none more than the others. Targets (against vllm-router in the
same rounds): first byte at most 1.3 times its, requests per second at least 85 % of its.
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import http_path
from benchmarks.live.figures import Median, fraction, median
from benchmarks.live.peers import Peer
from tests.engine.processes import ServiceError, free_port, service

ENGINE_CAPACITY_TOKENS = 16_000_000
RULERS = ("vllm-router-round-robin", "vllm-router-consistent-hash", "vllm-router-cache-aware")
"""The last is the policy that it starts with if told none."""
FIRST_BYTE_TIMES_MAX = 1.3
REQUESTS_SHARE_MIN = 0.85
PATH_SECONDS_MAX = 60.0
"""Of one path in one round, which takes about 4."""
DIRECT = "direct"
COLUMNS = ("first_byte_ms", "requests_per_second", "cpu_ms_per_request")
ROLES = Path(http_path.__file__).with_name("_http_roles.py")


@contextlib.contextmanager
def _paths(peers: Sequence[Peer], logs: Path) -> Iterator[dict[str, http_path.Running]]:
    with contextlib.ExitStack() as stack:
        port = free_port()
        engine = stack.enter_context(
            http_path.running(sys.executable, str(ROLES), "engine", str(port), port=port)
        )
        paths = {DIRECT: engine}
        for peer in peers:
            launch = peer.launch([engine.url], ENGINE_CAPACITY_TOKENS)
            started = service(
                launch.command, launch.url, logs / f"routers-{peer.name}.log", ready_path=launch.ready_path
            )
            running = stack.enter_context(started)
            paths[peer.name] = http_path.Running(running.url, running.pid)
            print(f"  {peer.name} listens", flush=True)
        yield paths


def measure(peers: Sequence[Peer], rounds: int, logs: Path) -> dict[str, dict[str, list[float]]]:
    """By path and column, the figure of each round. Raises ServiceError."""
    with _paths(peers, logs) as paths:
        seconds_max = PATH_SECONDS_MAX * len(paths) * rounds
        try:
            return uvloop.run(asyncio.wait_for(http_path.measure(paths, rounds), seconds_max))
        except TimeoutError:
            raise ServiceError(f"the routers did not pass the load within {seconds_max:g} s") from None
        except (AssertionError, OSError) as error:
            raise ServiceError(f"a router did not pass the load: {error}") from error


def medians_of(figures: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Median]]:
    """By path and column, the median over the rounds with its interval."""
    return {
        name: {column: median(one[column]) for column in COLUMNS if one[column]}
        for name, one in figures.items()
    }


def verdicts(figures: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Each of our paths against each of vllm-router's: ratios within the rounds, and whether targets are met."""
    found = []
    for name in (name for name in figures if name == "tao" or name.startswith("tao-")):
        for ruler in (ruler for ruler in RULERS if ruler in figures):
            times = median(fraction(figures[name]["first_byte_ms"], figures[ruler]["first_byte_ms"]))
            share = median(
                fraction(figures[name]["requests_per_second"], figures[ruler]["requests_per_second"])
            )
            met = times.value <= FIRST_BYTE_TIMES_MAX and share.value >= REQUESTS_SHARE_MIN
            found.append(
                {
                    "path": name,
                    "against": ruler,
                    "first_byte_times": times,
                    "requests_share": share,
                    "targets_met": met,
                }
            )
    return found


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """Markdown: a row for each path."""
    lines = [
        "| path | first byte, 1 stream, ms | added, ms | requests/s, 32 streams | processor ms a request |",
        "|---|---|---|---|---|",
    ]
    medians = medians_of(figures)
    direct = medians[DIRECT]["first_byte_ms"].value
    for name, one in medians.items():
        first, rate, cpu = (one[column] for column in COLUMNS)
        added = "" if name == DIRECT else f"{first.value - direct:.2f}"
        lines.append(f"| {name} | {first:.2f} | {added} | {rate:.0f} | {cpu.value:.2f} |")
    lines += [
        "",
        "| ours | against | first byte, times its | requests/s, share of its | targets |",
        "|---|---|---|---|---|",
    ]
    for one_verdict in verdicts(figures):
        times, share = one_verdict["first_byte_times"], one_verdict["requests_share"]
        met = "met" if one_verdict["targets_met"] else "missed"
        lines.append(
            f"| {one_verdict['path']} | {one_verdict['against']} | {times:.2f} | {share:.2f} | {met} |"
        )
    return "\n".join(lines) + "\n"
