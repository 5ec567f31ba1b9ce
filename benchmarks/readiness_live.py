"""What readiness brings live: agents with slower tools through a gateway and emulated replicas, as processes.

usage: python benchmarks/readiness_live.py [--sessions N] [--concurrency W] [--speed X] [--repeats N] [--json FILE]
Each session's tools get one fixed extra delay (paper, appendix G). Three arms, one after another so that a busy machine
treats them alike: `off` (tao-no-readiness), `history` (tao, told the names of tools, as a client with hooks tells them) and
`oracle` (tao, told when each tool returns). All figures are model seconds. The lags of client and emulator say how well the
machine kept up: a run that lagged says little.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import aiohttp
from rich.console import Console
from rich.table import Table

from tao.cli.children import running
from tao.cli.demo import PROFILE
from tao.engines.samples import read_samples
from tao.record.summary import summarise
from tao.replay import Replay, ReplayConfig, ToldOfTools
from tao.traces import TraceSession, read_trace, sample_path, select_sessions

ARMS: Mapping[str, tuple[str, ToldOfTools]] = {
    "off": ("tao-no-readiness", ToldOfTools.NAMES),
    "history": ("tao", ToldOfTools.NAMES),
    "oracle": ("tao", ToldOfTools.RETURNS),
}
DELAYS = ((1.0, 5.0), (2.0, 10.0), (4.0, 20.0))
REPLICAS = 2
LAG, INTERRUPTS = "tao_emulator_lag_share", "tao_interrupts_total"
RETURN_ERROR, RETURNS = "tao_return_error_seconds_total", "tao_returns_total"
READ = frozenset((LAG, INTERRUPTS, RETURN_ERROR, RETURNS))
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Scene:
    """`speed`: model seconds a second. `kv_tokens`: of each replica. `seed`: of the first repeat; others count on."""

    sessions: int = 24
    concurrency: int = 16
    speed: float = 20.0
    kv_tokens: int = 80_000
    repeats: int = 1
    seed: int = 0

    def chosen(self) -> Sequence[TraceSession]:
        """The sessions: those of the sample that fit, in a fixed order."""
        longest = self.kv_tokens // 2
        trace = read_trace(sample_path())
        return select_sessions(trace, count_max=self.sessions, seed=0, prompt_tokens_max=longest).sessions


async def play(scene: Scene, arm: str, delay: tuple[float, float], seed: int) -> Row:
    """One run: its figures."""
    policy, told = ARMS[arm]
    speed = ["--speed", f"{scene.speed:g}"]
    emulate = ["emulate", "--port", "0", "--profile", PROFILE, "--kv-tokens", str(scene.kv_tokens), *speed]
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(running(f"replica {n}", emulate)) for n in range(REPLICAS)
        ]
        named = [argument for replica in replicas for argument in ("--replica", replica.url)]
        serve = ["serve", "--port", "0", "--policy", policy, *speed, "--log-level", "error", *named]
        gateway = await stack.enter_async_context(running("gateway", serve))
        config = ReplayConfig(
            gateway.url,
            concurrency=scene.concurrency,
            speed=scene.speed,
            seed=seed,
            told_of_tools=told,
            tool_delay_seconds=delay,
        )
        run = Replay(config, scene.chosen())
        await run.run()
        lags = [(await numbers(replica.url)).get(LAG, 0.0) for replica in replicas]
        figures = await numbers(gateway.url)
    return {
        "arm": arm,
        "policy": policy,
        "tool_delay_seconds": list(delay),
        "seed": seed,
        **summarise(run.measurements, workers=scene.concurrency).to_json_dict(),
        "return_error_seconds": ratio(figures, RETURN_ERROR, RETURNS),
        "interrupts": figures.get(INTERRUPTS, 0.0),
        "tool_reports_failed": run.reports_failed,
        "client_lag_seconds_max": run.lag_seconds_max,
        "emulator_lag_share": max(lags),
        "load_average": os.getloadavg()[0],
    }


async def numbers(url: str) -> dict[str, float]:
    """The metrics that are read of a page, each summed over its labels."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{url}/metrics") as response:
        found = read_samples(await response.read(), READ).by_name
    return {name: sum(sample.value for sample in samples) for name, samples in found.items()}


def ratio(figures: Mapping[str, float], part: str, whole: str) -> float | None:
    return figures[part] / figures[whole] if figures.get(whole) else None


def value(row: Row, name: str) -> float | None:
    """A figure; of a distribution its mean."""
    found = row.get(name)
    found = found.get("mean") if isinstance(found, dict) else found
    return float(found) if isinstance(found, int | float) else None


def shown(rows: Sequence[Row], name: str) -> str:
    """The mean over repeats, with its spread where there are several."""
    found = [number for row in rows if (number := value(row, name)) is not None]
    if not found:
        return "-"
    digits = 3 if max(map(abs, found)) < 1 else 1
    spread = f" ± {stdev(found):.{digits}f}" if len(found) > 1 else ""
    return f"{fmean(found):.{digits}f}{spread}"


COLUMNS = {
    "session latency": "latency_seconds",
    "TTFT": "ttft_seconds",
    "tool end to token": "tool_end_to_first_token_seconds",
    "hold": "hold_seconds",
    "hit rate": "prefix_hit_rate",
    "decode tokens/s": "decode_tokens_per_second_overall",
    "interrupts": "interrupts",
    "prediction off by": "return_error_seconds",
    "client lag": "client_lag_seconds_max",
    "emulator lag": "emulator_lag_share",
}


def table(rows: Sequence[Row]) -> Table:
    """Means by delay and arm."""
    shape = Table("delay", "readiness", *COLUMNS, title="Model seconds; means")
    for delay in DELAYS:
        for arm in ARMS:
            of_arm = [r for r in rows if r["arm"] == arm and r["tool_delay_seconds"] == list(delay)]
            if of_arm:
                cells = [shown(of_arm, name) for name in COLUMNS.values()]
                shape.add_row(f"{delay[0]:g}-{delay[1]:g} s", arm, *cells)
        shape.add_section()
    return shape


async def compare(scene: Scene, path: Path | None) -> list[Row]:
    """All runs; the file holds what is there after each."""
    rows: list[Row] = []
    for seed in range(scene.seed, scene.seed + scene.repeats):
        for delay in DELAYS:
            for arm in ARMS:
                rows.append(await play(scene, arm, delay, seed))
                print(f"{delay} {arm}: latency {shown(rows[-1:], 'latency_seconds')}", file=sys.stderr)
                if path is not None:
                    write(path, scene, rows)
    return rows


def write(path: Path, scene: Scene, rows: Sequence[Row]) -> None:
    told = {
        name: getattr(scene, name) for name in ("sessions", "concurrency", "speed", "kv_tokens", "repeats")
    }
    text = json.dumps({"scene": {**told, "replicas": REPLICAS, "profile": PROFILE}, "runs": rows}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    """0; 1 where a turn failed."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    for name in ("sessions", "concurrency", "repeats", "kv-tokens", "seed"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--speed", type=float)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="the table of earlier runs")
    options = vars(parser.parse_args())
    shown_files: list[Path] | None = options.pop("show")
    if shown_files:
        Console(width=150).print(
            table([row for file in shown_files for row in json.loads(file.read_text())["runs"]])
        )
        return 0
    path: Path | None = options.pop("json")
    scene = replace(Scene(), **{name: number for name, number in options.items() if number is not None})
    rows = asyncio.run(compare(scene, path))
    Console(width=150).print(table(rows))
    return 1 if any(row.get("turns_failed") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
