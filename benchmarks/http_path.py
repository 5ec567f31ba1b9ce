"""The data path beside a direct connection and a minimal fastapi+httpx proxy, before the same fake engine.

usage: python benchmarks/http_path.py [--rounds N] [--paths NAME,NAME] [--json FILE]
In each round every path is measured once, with one stream (median time to the first byte) and with 32 streams
(requests per second); the medians over all rounds count, so that a machine that changes its speed harms no path more
than the others. Paths: `direct`; `pass` (our transport alone); `serve` (`tao serve`, scheduling included, round-robin);
`aiohttp` (our server with aiohttp as the client); `fastapi` (fastapi and httpx, the stack of ThunderAgent).
Targets: `serve` first byte <= direct + 1.5 ms; `serve` at 32 streams >= 5 times `fastapi`.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvloop

PATHS = ("direct", "pass", "serve", "aiohttp", "fastapi")
TOKENS = 16
SINGLE_REQUESTS = 60
STREAMS = 32
START_SECONDS = 60.0
REQUESTS_PER_STREAM = 20
BODY = {
    "model": "tiny",
    "stream": True,
    "messages": [{"role": "user", "content": "hello " * 200}],
    "max_tokens": TOKENS,
}
# --- the load -------------------------------------------------------------------------------------


class Stream(asyncio.Protocol):
    """A client of one connection, as cheap as can be: on two cores a heavy client would be measured instead."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.set_result(None)
        self.body = bytearray()
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self.body:
            self.first = time.perf_counter()
        self.body += data
        if self.body.endswith(b"0\r\n\r\n"):
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError(f"cut after {bytes(self.body[:200])!r}"))

    async def request(self, data: bytes) -> float:
        """Seconds from the request to the first byte of its answer."""
        self.done = asyncio.get_running_loop().create_future()
        self.body.clear()
        begun = time.perf_counter()
        self.transport.write(data)
        await self.done
        assert self.body.startswith(b"HTTP/1.1 200"), bytes(self.body[:200])
        assert b"data: [DONE]" in self.body
        return self.first - begun


async def load(url: str, requests: int, streams: int) -> tuple[float, float]:
    """(median seconds to the first byte, requests per second)."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(BODY).encode()
    firsts: list[float] = []

    async def stream(number: int) -> None:
        _, client = await asyncio.get_running_loop().create_connection(Stream, host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nx-session-id: s{number}\r\n"
        data = (
            head.encode() + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        firsts.extend([await client.request(data) for _ in range(requests // streams)])
        client.transport.close()

    started = time.perf_counter()
    await asyncio.gather(*(stream(number) for number in range(streams)))
    elapsed = time.perf_counter() - started
    return statistics.median(firsts), len(firsts) / elapsed


async def measure(paths: dict[str, "Running"], rounds: int) -> dict[str, dict[str, list[float]]]:
    columns = ("first_byte_ms", "requests_per_second", "cpu_ms_per_request")
    figures: dict[str, dict[str, list[float]]] = {name: {column: [] for column in columns} for name in paths}
    for path in paths.values():
        await load(path.url, 128, 8)
    names = list(paths)
    for number in range(rounds):
        # Each round begins with another path, so that none always follows the same neighbour.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            path, one = paths[name], figures[name]
            first, _ = await load(path.url, SINGLE_REQUESTS, 1)
            before = path.cpu_seconds()
            _, rate = await load(path.url, STREAMS * REQUESTS_PER_STREAM, STREAMS)
            one["first_byte_ms"].append(first * 1e3)
            one["requests_per_second"].append(rate)
            one["cpu_ms_per_request"].append(
                (path.cpu_seconds() - before) * 1e3 / (STREAMS * REQUESTS_PER_STREAM)
            )
    return figures


# --- processes ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Running:
    """A process of one path: the proxy, or the engine itself for the direct one."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Processor time of the process so far (user and system), all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*command: str, port: int) -> Iterator[Running]:
    """A process that prints a line when it listens."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        listens, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        if not listens or not process.stdout.readline():
            raise RuntimeError(f"{' '.join(command)} did not start within {START_SECONDS:g} s")
        yield Running(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def all_running(names: list[str]) -> Iterator[dict[str, Running]]:
    role = [sys.executable, str(Path(__file__).with_name("_http_roles.py"))]
    with contextlib.ExitStack() as stack:
        port = free_port()
        engine = stack.enter_context(running(*role, "engine", str(port), port=port))
        paths = {}
        for name in names:
            port = free_port()
            if name == "direct":
                paths[name] = engine
                continue
            command = [*role, name, str(port), engine.url]
            if name == "serve":
                command = [sys.executable, "-m", "tao", "serve", "--replica", engine.url, "--port", str(port)]
                command += ["--policy", "round-robin", "--log-level", "error"]
            paths[name] = stack.enter_context(running(*command, port=port))
        yield paths


def report(figures: dict[str, dict[str, list[float]]], rounds: int) -> dict[str, Any]:
    medians = {
        name: {key: statistics.median(values) for key, values in one.items()} for name, one in figures.items()
    }
    base = medians.get("direct")
    slowest = medians.get("fastapi")
    print(
        f"medians of {rounds} alternating rounds; 1 stream: first byte; {STREAMS} streams: requests per second"
    )
    print(
        f"{'path':8} {'first byte ms':>14} {'+ direct':>9} {'requests/s':>11} {'x fastapi':>10} {'CPU ms/request':>15}"
    )
    for name, one in medians.items():
        added = one["first_byte_ms"] - base["first_byte_ms"] if base else float("nan")
        times = one["requests_per_second"] / slowest["requests_per_second"] if slowest else float("nan")
        rate = one["requests_per_second"]
        cpu = one["cpu_ms_per_request"]
        print(f"{name:8} {one['first_byte_ms']:14.2f} {added:9.2f} {rate:11.0f} {times:10.1f} {cpu:15.2f}")
    if base and slowest and "serve" in medians:
        added = medians["serve"]["first_byte_ms"] - base["first_byte_ms"]
        times = medians["serve"]["requests_per_second"] / slowest["requests_per_second"]
        print(
            f"target: serve first byte <= direct + 1.5 ms: {'met' if added <= 1.5 else 'MISSED'} (+{added:.2f} ms)"
        )
        print(
            f"target: serve at {STREAMS} streams >= 5 x fastapi: {'met' if times >= 5 else 'MISSED'} ({times:.1f} x)"
        )
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "rounds": rounds,
        "medians": medians,
        "rounds_of_each": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--paths", default=",".join(PATHS), help="comma-separated")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "http_path.json")
    options = parser.parse_args()
    with all_running(options.paths.split(",")) as paths:
        figures = uvloop.run(measure(paths, options.rounds))
    result = report(figures, options.rounds)
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
