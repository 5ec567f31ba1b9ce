"""Do the simulator and the emulator agree? The same agents live and in virtual time, by three policies, compared.

usage: python benchmarks/agreement.py [--sessions N] [--concurrency W] [--speed X] [--policies NAME,...] [--json FILE]
Live: the scene of `tao demo` (two emulated replicas and `tao serve` as processes, the load client of `tao replay` in
this one). Simulated: the mean of five runs whose waits differ by up to 50 ms, as those of live runs do. Agreement: mean
session latency and hit rate within 10 %, TTFT within 10 % plus the transport's measured share of it (what a client waited
that was neither a hold nor the engine), and the same ranking of the policies by mean session latency. Exit code 1 where
they disagree. What is meant and what was found: docs/validation.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from tao.cli.children import running
from tao.cli.demo import PROFILE
from tao.enginemodel import load_profile
from tao.record.summary import RunSummary, summarise
from tao.replay import Replay, ReplayConfig
from tao.sim.run import RunSpec, run
from tao.sim.workload import ClosedLoop, WorkloadSettings
from tao.traces import Selection, TraceSession, read_trace, sample_path, select_sessions
from tao.traces.model import HUMAN_WAIT, TraceTool, TraceTurn

REPLICAS = 2
WAIT_SECONDS_MAX = 1e6
HUMAN_WAIT_SECONDS_MAX = 30.0
JITTER_SECONDS_MAX = 0.05
FINAL_HEADER = "X-Session-Final"
COUNTERS = {
    "first_tokens": r"vllm:time_to_first_token_seconds_count",
    "first_token_seconds": r"vllm:time_to_first_token_seconds_sum",
    "lag_share": r"tao_emulator_lag_share",
    "lag_seconds_max": r"tao_emulator_lag_max_seconds",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played: `speed` model seconds a second live; `within` is the share by which figures may differ."""

    sessions: int = 20
    concurrency: int = 16
    speed: float = 10.0
    kv_tokens: int = 80_000
    policies: tuple[str, ...] = ("round-robin", "sticky-least-loaded", "tao")
    simulated_runs: int = 5
    within: float = 0.10

    def chosen(self) -> Selection:
        """The sessions, as `tao demo` chooses them."""
        trace = read_trace(sample_path())
        return select_sessions(trace, count_max=self.sessions, seed=0, prompt_tokens_max=self.kv_tokens // 2)


@dataclass(frozen=True, slots=True)
class Figures:
    """One run, or the mean of several, in model seconds."""

    latency_seconds: float
    prefix_hit_rate: float
    ttft_seconds: float
    hold_seconds: float
    makespan_seconds: float
    prompt_tokens: float
    output_tokens: float

    @classmethod
    def of(cls, summary: RunSummary) -> "Figures":
        """The figures of a run without failures."""
        if summary.turns_failed:
            raise RuntimeError(f"{summary.turns_failed} of {summary.turns} turns failed: {summary.errors}")
        numbers = (
            summary.latency_seconds.mean,
            summary.prefix_hit_rate,
            summary.ttft_seconds.mean,
            summary.hold_seconds.mean,
            summary.makespan_seconds,
            summary.prompt_tokens,
            summary.output_tokens,
        )
        return cls(*(0.0 if number is None else float(number) for number in numbers))

    @classmethod
    def mean(cls, runs: "Sequence[Figures]") -> "Figures":
        columns = zip(*(msgspec.to_builtins(one).values() for one in runs), strict=True)
        return cls(*map(fmean, columns))


@dataclass(frozen=True, slots=True)
class Live:
    """A live run and how well the machine kept up with it; model seconds but for `load_average`.

    `transport_seconds`: mean TTFT less hold less the engine's own. `emulator_lag_share`: lateness over duration of the
    requests of the later of the two replicas. `client_lag_seconds_max`: the latest that a wait's end was noticed.
    """

    figures: Figures
    engine_ttft_seconds: float
    transport_seconds: float
    emulator_lag_share: float
    emulator_lag_seconds_max: float
    client_lag_seconds_max: float
    load_average: float


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison; `share` is (live - simulated) / simulated, `allowed` the most that it may be off."""

    policy: str
    figure: str
    live: float
    simulated: float
    share: float
    allowed: float

    @property
    def holds(self) -> bool:
        return abs(self.share) <= self.allowed


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was found, by policy, and what follows."""

    scene: Scene
    live: dict[str, Live] = field(default_factory=dict)
    simulated: dict[str, list[Figures]] = field(default_factory=dict)

    def checks(self) -> list[Check]:
        """Three for each policy, in the order of the policies."""
        return [check for policy in self.live for check in self._checks_of(policy)]

    def rankings(self) -> tuple[list[str], list[str]]:
        """Policies by mean session latency, best first: live, simulated."""
        live = {policy: one.figures.latency_seconds for policy, one in self.live.items()}
        simulated = {policy: Figures.mean(runs).latency_seconds for policy, runs in self.simulated.items()}
        return sorted(live, key=live.__getitem__), sorted(simulated, key=simulated.__getitem__)

    def agrees(self) -> bool:
        """Whether all of it holds."""
        live, simulated = self.rankings()
        return live == simulated and all(check.holds for check in self.checks())

    def to_json_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        live, simulated = self.rankings()
        return {
            "agrees": self.agrees(),
            "ranking": {"live": live, "simulated": simulated},
            "checks": [{**asdict(check), "holds": check.holds} for check in self.checks()],
            "scene": asdict(self.scene),
            "live": {policy: asdict(one) for policy, one in self.live.items()},
            "simulated": {policy: [asdict(one) for one in runs] for policy, runs in self.simulated.items()},
        }

    def _checks_of(self, policy: str) -> list[Check]:
        live, simulated = self.live[policy], Figures.mean(self.simulated[policy])
        checks = []
        for figure in ("latency_seconds", "prefix_hit_rate", "ttft_seconds"):
            was, should = getattr(live.figures, figure), getattr(simulated, figure)
            allowed = self.scene.within
            if figure == "ttft_seconds":
                allowed += max(live.transport_seconds, 0.0) / should
            checks.append(Check(policy, figure, was, should, (was - should) / should, allowed))
        return checks


# --- in virtual time ----------------------------------------------------------------------------------------------


def as_the_client_shows(session: TraceSession, seed: int) -> TraceSession:
    """The session as a gateway sees it in a replay: it is away for as long, but no answer names the tool.

    The emulator answers with text of the recorded length, not with the recorded tool calls.
    """
    chance = random.Random(f"{seed} {session.session_id}")
    turns = tuple(_without_tool(turn, chance.uniform(0, JITTER_SECONDS_MAX)) for turn in session.turns)
    return msgspec.structs.replace(session, turns=turns)


def _without_tool(turn: TraceTurn, more_seconds: float) -> TraceTurn:
    if turn.tool is None and turn.user_gap_seconds is None:
        return turn
    human_seconds = min(turn.human_seconds, HUMAN_WAIT_SECONDS_MAX)
    away = TraceTool(name=HUMAN_WAIT, duration_seconds=turn.tool_seconds + human_seconds + more_seconds)
    return msgspec.structs.replace(turn, tool=away, tools=(), user_gap_seconds=None)


def simulate(scene: Scene, policy: str) -> list[Figures]:
    """As many runs as the scene asks for, each with waits a little different."""
    chosen = scene.chosen().sessions
    spec = RunSpec(
        policy=policy,
        profile=load_profile(PROFILE),
        replicas=REPLICAS,
        arrivals=ClosedLoop(scene.concurrency),
        traces=("sample",),
        kv_tokens=scene.kv_tokens,
        workload=WorkloadSettings(human_wait_seconds_max=WAIT_SECONDS_MAX),
    )
    return [
        Figures.of(run(spec, {"sample": [as_the_client_shows(one, seed) for one in chosen]}).summary)
        for seed in range(scene.simulated_runs)
    ]


# --- live ---------------------------------------------------------------------------------------------------------


async def play_live(scene: Scene, policy: str) -> Live:
    """Two emulators and a gateway as processes, started afresh; the sessions through them."""
    speed = ["--speed", f"{scene.speed:g}"]
    emulate = ["emulate", "--port", "0", "--profile", PROFILE, "--kv-tokens", str(scene.kv_tokens), *speed]
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(running(f"replica {n}", emulate)) for n in range(REPLICAS)
        ]
        addresses = [argument for replica in replicas for argument in ("--replica", replica.url)]
        serve = ["serve", "--port", "0", "--policy", policy, *speed, "--log-level", "warning", *addresses]
        gateway = await stack.enter_async_context(running("gateway", serve))
        config = ReplayConfig(
            gateway.url,
            concurrency=scene.concurrency,
            speed=scene.speed,
            final_header=FINAL_HEADER,
            human_wait_seconds_max=HUMAN_WAIT_SECONDS_MAX,
        )
        replay = Replay(config, scene.chosen().sessions)
        await replay.run()
        load_average = os.getloadavg()[0]
        pages = [await _counters(replica.url) for replica in replicas]
    figures = Figures.of(summarise(replay.measurements, workers=scene.concurrency))
    engine_seconds = sum(page["first_token_seconds"] for page in pages)
    engine_ttft_seconds = engine_seconds / sum(page["first_tokens"] for page in pages)
    return Live(
        figures=figures,
        engine_ttft_seconds=engine_ttft_seconds,
        transport_seconds=figures.ttft_seconds - figures.hold_seconds - engine_ttft_seconds,
        emulator_lag_share=max(page["lag_share"] for page in pages),
        emulator_lag_seconds_max=max(page["lag_seconds_max"] for page in pages),
        client_lag_seconds_max=replay.lag_seconds_max,
        load_average=load_average,
    )


async def _counters(url: str) -> dict[str, float]:
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{url}/metrics") as response:
        page = await response.text()
    found: dict[str, float] = {}
    for key, name in COUNTERS.items():
        line = re.search(rf"^{name}\{{.*\}} (\S+)$", page, re.MULTILINE)
        if line is None:
            raise RuntimeError(f"{url}/metrics has no {name}")
        found[key] = float(line.group(1))
    return found


# --- both ---------------------------------------------------------------------------------------------------------


async def compare(scene: Scene) -> Outcome:
    """All policies, live and simulated."""
    outcome = Outcome(scene)
    for policy in scene.policies:
        outcome.simulated[policy] = await asyncio.to_thread(simulate, scene, policy)
        outcome.live[policy] = await play_live(scene, policy)
    return outcome


def show(outcome: Outcome, console: Console) -> None:
    """Tables: the figures with their verdicts, then how well the machine kept up."""
    table = Table(title="Live beside simulated (model seconds)")
    for heading in ("policy", "figure", "live", "simulated", "range", "off by", "allowed", ""):
        table.add_column(heading, justify="left" if heading in ("policy", "figure") else "right")
    for check in outcome.checks():
        values = [getattr(one, check.figure) for one in outcome.simulated[check.policy]]
        numbers = (f"{check.live:.3f}", f"{check.simulated:.3f}", f"{min(values):.3f} to {max(values):.3f}")
        shares = (f"{check.share:+.1%}", f"{check.allowed:.1%}", "yes" if check.holds else "NO")
        table.add_row(check.policy, check.figure, *numbers, *shares)
    console.print(table)
    kept = Table(title="How well the machine kept up (model seconds)")
    for heading in ("policy", "hold", "engine TTFT", "transport", "emulator lag", "client lag max", "load"):
        kept.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy, live in outcome.live.items():
        seconds = (live.figures.hold_seconds, live.engine_ttft_seconds, live.transport_seconds)
        lags = (
            f"{live.emulator_lag_share:.2%}",
            f"{live.client_lag_seconds_max:.2f}",
            f"{live.load_average:.1f}",
        )
        kept.add_row(policy, *(f"{value:.3f}" for value in seconds), *lags)
    console.print(kept)
    live_order, simulated_order = outcome.rankings()
    console.print(f"ranking live: {' < '.join(live_order)}; simulated: {' < '.join(simulated_order)}")
    console.print("they agree" if outcome.agrees() else "THEY DISAGREE")


def main() -> int:
    """0 where all holds, 1 where not."""
    default = Scene()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=default.sessions)
    parser.add_argument("--concurrency", type=int, default=default.concurrency)
    parser.add_argument("--speed", type=float, default=default.speed)
    parser.add_argument("--policies", default=",".join(default.policies))
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    scene = replace(
        default,
        sessions=options.sessions,
        concurrency=options.concurrency,
        speed=options.speed,
        policies=tuple(options.policies.split(",")),
    )
    outcome = asyncio.run(compare(scene))
    show(outcome, Console(width=120))
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.to_json_dict(), indent=2) + "\n", encoding="utf-8")
    return 0 if outcome.agrees() else 1


if __name__ == "__main__":
    sys.exit(main())
