"""Do the simulator and the emulator agree? The same agents live and in virtual time, by three policies, compared.

usage: python benchmarks/agreement.py [--quick] [--repeats N] [--sessions N] [--concurrency W] [--speed X] [--json FILE]
Live: the scene of `tao demo` as processes, some runs. Simulated: ten runs whose waits differ by up to 50 ms. Compared:
- `free`: session latency, hit rate, TTFT, and the order of policies that differ in latency. Runs that differ by
  milliseconds part ways, so twice the standard error of the live mean is allowed beyond 10 % and marked `chance`.
- `same arrivals`: turn duration, hit rate, TTFT, without holds, against engine models that get the live run's requests at
  the moments and on the replicas that its gateway recorded. Nothing is left to chance there.
TTFT and durations may differ by what the transport took (TTFT less hold less the engine's own) as well. Exit code 1 where
they disagree. What it means and what was found: docs/validation.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from tao.cli.children import running
from tao.cli.demo import PROFILE
from tao.core.commands import DispatchTurn
from tao.core.ids import ReplicaId, SessionId
from tao.enginemodel import EngineModel, Finished, FirstToken, Request, load_profile
from tao.record.log import read_log
from tao.record.summary import RunSummary, summarise
from tao.replay import Replay, ReplayConfig
from tao.sim.played import PlayedSession
from tao.sim.run import RunSpec, run
from tao.sim.workload import ClosedLoop, WorkloadSettings
from tao.traces import TraceSession, read_trace, sample_path, select_sessions
from tao.traces.model import HUMAN_WAIT, TraceTool, TraceTurn

REPLICAS = 2
WAIT_SECONDS_MAX = 1e6
LATE = 1e9
JITTER_SECONDS_MAX = 0.05
LATENCY = "latency_seconds"
Numbers = dict[str, float]
"""Figures by name, in model seconds, tokens or shares."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played: `speed` model seconds a second live; `within` is the share by which figures may differ.

    `ends_told`: clients say when a session is over, as agents that release their sessions do.
    """

    sessions: int = 20
    concurrency: int = 16
    speed: float = 25.0
    kv_tokens: int = 80_000
    policies: tuple[str, ...] = ("round-robin", "sticky-least-loaded", "tao")
    ends_told: bool = True
    repeats: int = 3
    simulated_runs: int = 10
    within: float = 0.10

    def chosen(self) -> Sequence[TraceSession]:
        """The sessions, as `tao demo` chooses them."""
        trace, longest = read_trace(sample_path()), self.kv_tokens // 2
        return select_sessions(trace, count_max=self.sessions, seed=0, prompt_tokens_max=longest).sessions


QUICK = Scene(sessions=8, concurrency=8, speed=20.0, kv_tokens=40_000, repeats=1, within=0.25)
"""A minute and a half, with room for a machine that does other things: each second it delays counts times the speed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison; `share` is (live - model) / model. `allowed` adds what the transport took, `chance` the scatter."""

    policy: str
    kind: str
    figure: str
    live: float
    model: float
    share: float
    allowed: float
    chance: float

    @property
    def verdict(self) -> str:
        if abs(self.share) <= self.allowed:
            return "yes"
        return "chance" if abs(self.share) <= self.allowed + self.chance else "NO"


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was found: figures of the runs by policy. `models`: engine models with the arrivals of each live run."""

    scene: Scene
    live: dict[str, list[Numbers]] = field(default_factory=dict)
    models: dict[str, list[Numbers]] = field(default_factory=dict)
    simulated: dict[str, list[Numbers]] = field(default_factory=dict)

    def checks(self) -> Iterator[Check]:
        """All comparisons, in the order of the policies."""
        for policy, live in self.live.items():
            simulated, models = self.simulated[policy], self.models[policy]
            for figure in (LATENCY, "prefix_hit_rate", "ttft_seconds"):
                yield self._check(policy, "free", figure, live, simulated)
            for figure in ("turn_seconds", "prefix_hit_rate", "ttft_less_hold_seconds"):
                yield self._check(policy, "same arrivals", figure, live, models)

    def agrees(self) -> bool:
        """Whether all checks hold, and policies more than `within` apart when simulated are in the same order live."""
        latency = [
            (mean(self.simulated[policy], LATENCY), mean(self.live[policy], LATENCY)) for policy in self.live
        ]
        apart = 1 + self.scene.within
        same = all(one[1] > other[1] for one in latency for other in latency if one[0] > apart * other[0])
        return same and all(check.verdict != "NO" for check in self.checks())

    def to_json_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        return {
            "agrees": self.agrees(),
            "ranking": {"live": ranked(self.live), "simulated": ranked(self.simulated)},
            "checks": [{**asdict(check), "verdict": check.verdict} for check in self.checks()],
            **asdict(self),
        }

    def _check(
        self, policy: str, kind: str, figure: str, live: Sequence[Numbers], model: Sequence[Numbers]
    ) -> Check:
        was, should = mean(live, figure), mean(model, figure)
        waits_for_transport = figure in ("ttft_seconds", "ttft_less_hold_seconds", "turn_seconds")
        transport = max(mean(live, "transport_seconds"), 0.0) if waits_for_transport else 0.0
        scatter = stdev(one[figure] for one in model) if kind == "free" else 0.0
        chance = 2 * scatter / len(live) ** 0.5 / should
        allowed = self.scene.within + transport / should
        return Check(policy, kind, figure, was, should, was / should - 1, allowed, chance)


def mean(runs: Sequence[Numbers], figure: str) -> float:
    return fmean(one[figure] for one in runs)


def ranked(runs: Mapping[str, Sequence[Numbers]]) -> list[str]:
    """Policies by mean session latency."""
    return sorted(runs, key=lambda policy: mean(runs[policy], LATENCY))


def figures_of(summary: RunSummary) -> Numbers:
    """The figures of a run. Raises RuntimeError where a turn failed: such a run compares to nothing."""
    if summary.turns_failed:
        raise RuntimeError(f"{summary.turns_failed} of {summary.turns} turns failed: {summary.errors}")
    names = (LATENCY, "ttft_seconds", "hold_seconds")
    numbers = {name: getattr(summary, name).mean for name in names}
    numbers |= {"prefix_hit_rate": summary.prefix_hit_rate, "prompt_tokens": summary.prompt_tokens}
    return {name: float(number or 0.0) for name, number in numbers.items()}


def as_the_client_shows(session: TraceSession, seed: int) -> TraceSession:
    """The session as a gateway sees it in a replay: it is away for as long, but no answer names the tool.

    The emulator answers with text of the recorded length, not with the recorded tool calls.
    """
    chance = random.Random(f"{seed} {session.session_id}")
    turns = tuple(_without_tool(turn, chance.uniform(0, JITTER_SECONDS_MAX)) for turn in session.turns)
    return msgspec.structs.replace(session, turns=turns)


def _without_tool(turn: TraceTurn, more_seconds: float) -> TraceTurn:
    human_seconds = min(turn.human_seconds, WorkloadSettings().human_wait_seconds_max)
    away = TraceTool(name=HUMAN_WAIT, duration_seconds=turn.tool_seconds + human_seconds + more_seconds)
    return msgspec.structs.replace(turn, tool=away, tools=(), user_gap_seconds=None)


def simulate(scene: Scene, policy: str) -> list[Numbers]:
    """As many runs as the scene asks for, each with waits a little different."""
    runs = []
    for seed in range(scene.simulated_runs):
        spec = RunSpec(
            policy=policy,
            profile=load_profile(PROFILE),
            replicas=REPLICAS,
            arrivals=ClosedLoop(scene.concurrency),
            traces=("sample",),
            kv_tokens=scene.kv_tokens,
            workload=WorkloadSettings(human_wait_seconds_max=WAIT_SECONDS_MAX, ends_told=scene.ends_told),
        )
        sessions = [as_the_client_shows(one, seed) for one in scene.chosen()]
        runs.append(figures_of(run(spec, {"sample": sessions}).summary))
    return runs


async def play_live(scene: Scene, policy: str) -> tuple[Numbers, Numbers]:
    """Two emulators and a gateway as processes, started afresh, the sessions through them; and the models' figures.

    Beside the figures of a run: `emulator_lag_share`, lateness over duration of the requests of the later emulator;
    `client_lag_seconds_max`, the latest that a wait's end was noticed; `load_average` of the machine at the end.
    """
    speed = ["--speed", f"{scene.speed:g}"]
    emulate = ["emulate", "--port", "0", "--profile", PROFILE, "--kv-tokens", str(scene.kv_tokens), *speed]
    async with contextlib.AsyncExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log.jsonl"
        replicas = [
            await stack.enter_async_context(running(f"replica {n}", emulate)) for n in range(REPLICAS)
        ]
        serve = ["serve", "--port", "0", "--policy", policy, *speed, "--log-level", "warning"]
        serve += [argument for replica in replicas for argument in ("--replica", replica.url)]
        async with running("gateway", [*serve, "--record-log", str(log)]) as gateway:
            config = ReplayConfig(gateway.url, concurrency=scene.concurrency, speed=scene.speed)
            if scene.ends_told:
                config = replace(config, final_header="X-Session-Final")
            replay = Replay(config, scene.chosen())
            await replay.run()
            load_average = os.getloadavg()[0]
            pages = [await _metrics(replica.url) for replica in replicas]
        model = engines_alone(scene, log)
    figures = figures_of(summarise(replay.measurements, workers=scene.concurrency))
    engine_seconds = sum(page["vllm:time_to_first_token_seconds_sum"] for page in pages)
    engine_ttft_seconds = engine_seconds / sum(
        page["vllm:time_to_first_token_seconds_count"] for page in pages
    )
    figures["hold_seconds"] = model[
        "hold_seconds"
    ]  # a client sees no more of a hold than the last sign of life
    ttft_less_hold_seconds = figures["ttft_seconds"] - figures["hold_seconds"]
    turns = fmean(one.finished_at - one.arrived_at for one in replay.measurements)
    more = {
        "turn_seconds": turns - figures["hold_seconds"],
        "ttft_less_hold_seconds": ttft_less_hold_seconds,
        "transport_seconds": ttft_less_hold_seconds - engine_ttft_seconds,
        "emulator_lag_share": max(page["tao_emulator_lag_share"] for page in pages),
        "client_lag_seconds_max": replay.lag_seconds_max,
        "load_average": load_average,
    }
    return {**figures, **more}, model


async def _metrics(url: str) -> Numbers:
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{url}/metrics") as response:
        lines = re.findall(r"^([^{\n]+){.*} (\S+)$", await response.text(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def engines_alone(scene: Scene, log: Path) -> Numbers:
    """Engine models given the turns of a recorded run when and where its gateway dispatched them."""
    played = {trace.session_id: PlayedSession(SessionId(trace.session_id), trace) for trace in scene.chosen()}
    engines: dict[ReplicaId, EngineModel] = {}
    sent_at: dict[str, float] = {}
    last: dict[str, Request] = {}
    hold_seconds, prompt_tokens = 0.0, 0
    for entry in read_log(log):
        for command in entry.commands:
            if not isinstance(command, DispatchTurn):
                continue
            name = command.session.partition("/")[2]  # behind the tenant
            if name in last:
                played[name].answered(last[name])
                played[name].advance()
            request = last[name] = played[name].request(command.turn)
            sent_at[command.turn] = entry.event.at
            if command.replica not in engines:
                engines[command.replica] = EngineModel(load_profile(PROFILE), scene.kv_tokens)
            engines[command.replica].submit(entry.event.at, request)
            hold_seconds += command.hold_seconds
            prompt_tokens += request.prompt.tokens
    events = [event for engine in engines.values() for event in engine.advance(LATE)]
    first = [event for event in events if isinstance(event, FirstToken)]
    finished = [event for event in events if isinstance(event, Finished)]
    return {
        "turn_seconds": fmean(event.at - sent_at[event.request_id] for event in finished),
        "prefix_hit_rate": sum(event.cached_tokens for event in first) / prompt_tokens,
        "ttft_less_hold_seconds": fmean(event.at - sent_at[event.request_id] for event in first),
        "hold_seconds": hold_seconds / len(sent_at),
    }


async def compare(scene: Scene) -> Outcome:
    """All policies, live and simulated."""
    outcome = Outcome(scene)
    for policy in scene.policies:
        outcome.simulated[policy] = await asyncio.to_thread(simulate, scene, policy)
        runs = [await play_live(scene, policy) for _ in range(scene.repeats)]
        outcome.live[policy], outcome.models[policy] = [run[0] for run in runs], [run[1] for run in runs]
    return outcome


def show(outcome: Outcome, console: Console) -> None:
    """Tables: the comparisons with their verdicts, then how well the machine kept up."""
    table = Table("policy", "arrivals", "figure", "live", "model", "off by", "allowed", "chance", "within")
    for check in outcome.checks():
        shares = (f"{check.share:+.1%}", f"{check.allowed:.1%}", f"{check.chance:.1%}", check.verdict)
        table.add_row(
            check.policy, check.kind, check.figure, f"{check.live:.3f}", f"{check.model:.3f}", *shares
        )
    console.print(table)
    names = (
        "hold_seconds",
        "transport_seconds",
        "emulator_lag_share",
        "client_lag_seconds_max",
        "load_average",
    )
    kept = Table("policy", *names, title="Means of the live runs")
    for policy, runs in outcome.live.items():
        kept.add_row(policy, *(f"{mean(runs, name):.4f}" for name in names))
    console.print(kept)
    for name, kind in (("live", outcome.live), ("simulated", outcome.simulated)):
        console.print(f"{name}: {' < '.join(ranked(kind))}")
    console.print("they agree" if outcome.agrees() else "THEY DISAGREE")


def main() -> int:
    """0 where all holds, 1 where not."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="one short run a policy, wide margins")
    for name in ("sessions", "concurrency", "repeats"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--speed", type=float)
    parser.add_argument("--ends-told", action=argparse.BooleanOptionalAction)
    parser.add_argument("--policies", type=lambda names: tuple(names.split(",")), metavar="NAME,...")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = vars(parser.parse_args())
    scene = QUICK if options.pop("quick") else Scene()
    path: Path | None = options.pop("json")
    scene = replace(scene, **{name: value for name, value in options.items() if value is not None})
    outcome = asyncio.run(compare(scene))
    show(outcome, Console(width=130))
    if path is not None:
        path.write_text(json.dumps(outcome.to_json_dict(), indent=2) + "\n", encoding="utf-8")
    return 0 if outcome.agrees() else 1


if __name__ == "__main__":
    sys.exit(main())
