"""Does the emulator keep up with its own model time? 64 concurrent streams at speed 10 on one core.

usage: python benchmarks/emulator.py [--streams N] [--speed X] [--requests N] [--profile NAME]
The emulator runs in a process pinned to one core, the load client on another. Each of N workers sends streamed chat
requests one after another (a prompt of about 4,000 tokens that grows, 400 tokens out). Reported: lateness of the
emulator itself (its metrics), and of what the client sees (connection and client included), as a share of model time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

OUTPUT_TOKENS = 400


def start(speed: float, profile: str) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable,
        "-m",
        "tao",
        "emulate",
        "--port",
        "0",
        "--speed",
        str(speed),
        "--profile",
        profile,
    ]
    process = subprocess.Popen([*command, "--model", "m"], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {0})
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, line.split(" at ")[1].split()[0]


async def metrics(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with client.get(f"{url}/metrics") as response:
        text = await response.text()
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}


async def worker(client: aiohttp.ClientSession, url: str, name: int, requests: int, seen: list[float]) -> int:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{name} " * 8000}]
    events = 0
    for _ in range(requests):
        body = {
            "model": "m",
            "messages": messages,
            "stream": True,
            "max_tokens": OUTPUT_TOKENS,
            "ignore_eos": True,
        }
        started, text = time.perf_counter(), ""
        async with client.post(f"{url}/v1/chat/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    events += 1
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        seen.append(time.perf_counter() - started)
        assert len(text) == 4 * OUTPUT_TOKENS
        messages = [
            *messages,
            {"role": "assistant", "content": text},
            {"role": "user", "content": "go on " * 100},
        ]
    return events


async def run(url: str, streams: int, speed: float, requests: int, pid: int) -> dict[str, float]:
    seen: list[float] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        started, cpu = time.perf_counter(), cpu_seconds(pid)
        events = await asyncio.gather(*(worker(client, url, n, requests, seen) for n in range(streams)))
        seconds = time.perf_counter() - started
        cpu = cpu_seconds(pid) - cpu
        page = await metrics(client, url)
    model_seconds = page["vllm:e2e_request_latency_seconds_sum"]
    return {
        "requests": page["vllm:e2e_request_latency_seconds_count"],
        "wall_seconds": seconds,
        "tokens_per_second": page["vllm:generation_tokens_total"] / seconds,
        "events_per_second": sum(events) / seconds,
        "mean_model_latency_seconds": model_seconds / len(seen),
        "lag_share_emulator": page["tao_emulator_lag_share"],
        "lag_share_seen_by_client": sum(seen) * speed / model_seconds - 1,
        "emulator_cpu_share": cpu / seconds,
        "hit_rate": page["vllm:prefix_cache_hits_total"] / page["vllm:prefix_cache_queries_total"],
    }


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=8, help="per stream")
    parser.add_argument("--profile", default="qwen3-32b-tp2-h100")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {1})
    process, url = start(arguments.speed, arguments.profile)
    try:
        results = asyncio.run(run(url, arguments.streams, arguments.speed, arguments.requests, process.pid))
    finally:
        process.terminate()
        process.wait(10)
    for key, value in results.items():
        print(f"{key:30} {value:12.4f}")


if __name__ == "__main__":
    main()
