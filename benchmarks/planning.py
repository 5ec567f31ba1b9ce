"""The planner: time, proof and gap of every solver on seeded pools, and the event loop's stall during a large plan.

usage: python benchmarks/planning.py [--quick | --stall]
Pools: 30 % of items without credit, 15 % with credit in two knapsacks, weights log-normal around 25k, capacities 5-40 %
of 400k tokens. `fresh`: credit is a part of the footprint. `decayed`: it has halved every 10 s since a time drawn from
an exponential distribution (mean 30 s), so that most credits are small and many sums tie.
Solvers run on one thread; `cpu` is that thread's own time, which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tao.planning import Answer, Item, Knapsack, PlanWorker, Problem, SparseValues, WorkLimit, solve, verify

SIZES = {(40, 4): 40, (100, 8): 30, (200, 16): 20, (500, 32): 12, (1000, 64): 8}
SOLVERS = ("auto", "exact", "dp", "greedy", "bfd")
POOLS = ("fresh", "decayed")
STALL_PLANS = 10
BEAT_SECONDS = 0.001


@dataclass(frozen=True)
class Run:
    """One solver on one pool."""

    answer: Answer
    wall_seconds: float
    cpu_seconds: float


def pool(kind: str, items: int, knapsacks: int, seed: int) -> Problem:
    rng = random.Random(f"{kind}/{items}x{knapsacks}/{seed}")
    names = tuple(f"k{b:03}" for b in range(knapsacks))
    capacities = tuple(Knapsack(b, int(400_000 * rng.uniform(0.05, 0.40))) for b in names)
    return Problem(capacities, tuple(item(rng, kind, f"i{i:04}", names) for i in range(items)))


def item(rng: random.Random, kind: str, name: str, knapsacks: tuple[str, ...]) -> Item:
    footprint = int(rng.lognormvariate(10.05, 0.55))
    draw = rng.random()
    homes = rng.sample(knapsacks, 0 if draw < 0.30 else 2 if draw < 0.45 else 1)
    kept = (
        rng.uniform(0.1, 1.0) if kind == "fresh" else 2.0 ** (-rng.expovariate(1 / 30) / 10) for _ in homes
    )
    credit = {b: round(footprint * share) for b, share in zip(homes, kept, strict=True)}
    values = SparseValues(knapsacks, credit, int(rng.random() < 0.4), footprint)
    return Item(name, footprint + 512, values, homes[0] if homes else None)


def measure(problem: Problem, solver: str, limit: WorkLimit) -> Run:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = solve(problem, solver, limit)
    run = Run(answer, time.perf_counter() - wall, time.process_time() - cpu)
    assert verify(problem, answer.assignment) == answer.objective
    return run


def milliseconds(values: list[float]) -> str:
    """Median and the value that 99 % do not pass (the largest, below 100 runs)."""
    ordered = sorted(values)
    return f"{statistics.median(ordered) * 1e3:8.1f} {ordered[-1] * 1e3:8.1f}"


def gap(value: int, reference: int) -> float:
    return 0.0 if reference == 0 else 100.0 * (reference - value) / reference


def report(kind: str, size: tuple[int, int], solver: str, runs: list[Run], best: list[Run]) -> None:
    """One line: times, statuses, gap to its own bounds, and what it keeps of the best plan's value."""
    statuses = [run.answer.status for run in runs]
    shares = " ".join(
        f"{100 * statuses.count(s) // len(runs):4d}" for s in ("optimal", "feasible", "fallback")
    )
    credit_proved = sum(run.answer.objective.credit == run.answer.bound.credit for run in runs)
    gaps = [
        statistics.median(gap(run.answer.objective[c], run.answer.bound[c]) for run in runs) for c in range(3)
    ]
    short = [
        statistics.median(
            gap(r.answer.objective[c], b.answer.objective[c]) for r, b in zip(runs, best, strict=True)
        )
        for c in range(3)
    ]
    print(
        f"{kind:8} {size[0]:4}x{size[1]:<3} {solver:7} {len(runs):3} "
        f"{milliseconds([run.wall_seconds for run in runs])} {milliseconds([run.cpu_seconds for run in runs])}  "
        f"{shares} {100 * credit_proved // len(runs):5d}  "
        + " ".join(f"{value:7.2f}" for value in gaps)
        + "  "
        + " ".join(f"{value:7.2f}" for value in short),
        flush=True,
    )


def solvers(quick: bool) -> None:
    print("times in ms (wall and cpu: median, p99); status and proved credit in % of runs;")
    print(
        "gap: % below the run's own upper bound (median); short: % below the plan of `auto` (negative: above)"
    )
    print(
        f"{'pool':8} {'size':8} {'solver':7} {'n':>3} {'wall':>8} {'p99':>8} {'cpu':>8} {'p99':>8}  "
        f"{'opt':>4} {'feas':>4} {'fall':>4} {'kproof':>6}  {'gap k':>7} {'gap r':>7} {'gap t':>7}  "
        f"{'short k':>7} {'short r':>7} {'short t':>7}"
    )
    limit = WorkLimit()
    solve(pool("fresh", 40, 4, 0), "exact", limit)  # the first search pays for an import
    for kind in POOLS:
        for size, count in SIZES.items():
            problems = [pool(kind, *size, seed) for seed in range(3 if quick else count)]
            best: list[Run] = []
            for solver in SOLVERS:
                runs = [measure(problem, solver, limit) for problem in problems]
                best = best or runs
                report(kind, size, solver, runs, best)


@dataclass
class Heartbeat:
    """A timer every millisecond in an event loop: how late it is at worst, and the most work in one of its turns."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    async def beat(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT_SECONDS)
            self.wall_seconds = max(self.wall_seconds, time.perf_counter() - wall - BEAT_SECONDS)
            self.cpu_seconds = max(self.cpu_seconds, time.thread_time() - cpu)


def first_in_line() -> str:
    """Put this thread before all others of the machine, where that is allowed: what else runs is not our stall."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))
    except (AttributeError, PermissionError):
        return "loop at normal priority: other work on this machine counts as a stall"
    return "loop at real-time priority: other work on this machine does not count"


async def watched(work: Callable[[], Awaitable[float]]) -> tuple[Heartbeat, float]:
    """Run `work` beside a heartbeat."""
    heart = Heartbeat()
    beating = asyncio.create_task(heart.beat())
    await asyncio.sleep(0.05)
    heart.wall_seconds = heart.cpu_seconds = 0.0
    result = await work()
    beating.cancel()
    return heart, result


async def stall() -> None:
    """The longest turn of the loop while plans run in the planner's process, and while none does."""

    async def idle() -> float:
        await asyncio.sleep(1.0)
        return 0.0

    async with PlanWorker() as worker:
        print(first_in_line())
        heart, _ = await watched(idle)
        print(
            f"{'no plan':10} longest stall {heart.wall_seconds * 1e3:6.1f} ms, cpu {heart.cpu_seconds * 1e3:5.1f} ms"
        )
        for size in ((40, 4), (200, 16), (1000, 64)):
            hearts, trips = [], []
            for seed in range(STALL_PLANS):
                problem = pool("fresh", *size, seed)

                async def trip(problem: Problem = problem) -> float:
                    started = time.perf_counter()
                    answer = await worker.solve(problem, "auto", 30.0)
                    return time.perf_counter() - started - answer.elapsed_seconds

                heart, seconds = await watched(trip)
                hearts.append(heart)
                trips.append(seconds)
            print(
                f"{f'{size[0]}x{size[1]}':10} longest stall {max(h.wall_seconds for h in hearts) * 1e3:6.1f} ms, "
                f"cpu {max(h.cpu_seconds for h in hearts) * 1e3:5.1f} ms; "
                f"trip without solving {statistics.median(trips) * 1e3:5.1f} ms (median of {STALL_PLANS})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark the planner.")
    parser.add_argument("--quick", action="store_true", help="three pools of each size only")
    parser.add_argument("--stall", action="store_true", help="the event loop's stall only")
    options = parser.parse_args()
    if not options.stall:
        solvers(options.quick)
    print("\nevent loop, plans in the planner's process:")
    asyncio.run(stall())


if __name__ == "__main__":
    main()
