"""Speed and memory of the core alone: events per second with 1,000 live sessions, bytes of an idle session.

usage: python benchmarks/core.py [--policies NAME,NAME] [--sessions N] [--turns N] [--json FILE]
Each turn is four events (arrival, first token, progress, end), spread over the live sessions in turn; as a driver does,
`next_wakeup` is asked after each. `rush`: capacity for all, so that nothing is ever planned. `planning point`: one joint
decision's share of the core (interrupts, candidates, the request) while so many sessions wait. Times are the process's own
(CPU), since a busy machine stretches the wall's; the best of the rounds counts. Targets: 30,000 events/s, 4 KiB.
"""

import argparse
import json
import os
import platform
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

from tao.core import Scheduler
from tao.core.commands import ComputePlan
from tao.core.events import (
    CapacityChanged,
    Event,
    FirstToken,
    PlanFailed,
    ReplicaJoined,
    ToolCall,
    TurnArrived,
    TurnFinished,
    TurnProgress,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.policies import make_policy

RESULTS = Path(__file__).parent / "results"
REPLICAS = [ReplicaId(f"http://127.0.0.1:80{n:02}") for n in range(4)]
ENOUGH_TOKENS = 10**9
ROUNDS = 3


def session_id(number: int) -> SessionId:
    """As long as what clients send."""
    return SessionId(f"0f8fad5b-d9cb-469f-a165-{number:012}")


def scheduler_of(policy: str, capacity_tokens: int = ENOUGH_TOKENS) -> Scheduler:
    scheduler = Scheduler(make_policy(policy))
    for replica in REPLICAS:
        scheduler.handle(ReplicaJoined(0.0, replica, capacity_tokens))
    return scheduler


def turn_events(number: int, sessions: int) -> list[Event]:
    """The life of one turn: the next of its session, whose context grows by 500 tokens a turn."""
    turn, session, at = TurnId(f"turn-{number:09}"), session_id(number % sessions), number / 1_000
    prompt_tokens = 1_000 + 500 * (number // sessions)
    usage = Usage(prompt_tokens, 100, prompt_tokens - 100)
    return [
        TurnArrived(at, turn, session, prompt_tokens),
        FirstToken(at, turn),
        TurnProgress(at, turn, 32),
        TurnFinished(at, turn, usage, (ToolCall("bash", "pytest"),)),
    ]


def feed(scheduler: Scheduler, events: list[Event]) -> float:
    """Events per second of CPU time."""
    handle, next_wakeup = scheduler.handle, scheduler.next_wakeup
    started = process_time()
    for event in events:
        handle(event)
        next_wakeup()
    return len(events) / (process_time() - started)


def rush(policy: str, sessions: int, turns: int) -> float:
    """Events per second once all sessions are live."""
    scheduler = scheduler_of(policy)
    feed(scheduler, [event for n in range(sessions) for event in turn_events(n, sessions)])
    assert len(scheduler.view.sessions) == sessions
    return feed(
        scheduler, [event for n in range(sessions, sessions + turns) for event in turn_events(n, sessions)]
    )


def planning_point(policy: str, waiting: int) -> float:
    """Milliseconds of one planning point with so many sessions in the pool, the planner's own time left out."""
    scheduler = scheduler_of(policy, capacity_tokens=2_000)
    for n in range(len(REPLICAS) + waiting):
        scheduler.handle(TurnArrived(0.0, TurnId(f"turn-{n:09}"), session_id(n), 1_400))
    for replica in REPLICAS:
        scheduler.handle(CapacityChanged(1.0, replica, 20_000))
    best = float("inf")
    for n in range(2, 12):
        started = process_time()
        [compute] = scheduler.handle(WakeUp(float(n)))
        best = min(best, process_time() - started)
        assert isinstance(compute, ComputePlan)
        assert len(compute.request.candidates) == waiting
        scheduler.handle(PlanFailed(float(n), compute.plan, "not wanted"))
    return 1_000 * best


def bytes_per_idle_session(policy: str, sessions: int) -> float:
    """What a session costs between two turns, with the evidence of one replica's cache and its ids."""
    scheduler = scheduler_of(policy)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(sessions):
        for event in turn_events(n, sessions):
            scheduler.handle(event)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(scheduler.view.sessions) == sessions
    return (after - before) / sessions


def best_of(measure: Callable[[], float]) -> float:
    return max(measure() for _ in range(ROUNDS))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", default="round-robin,tao-paper,tao")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--json", type=Path, default=RESULTS / "core.json")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in options.policies.split(","):
        figures = results[name] = {
            "events_per_second": round(best_of(lambda: rush(name, options.sessions, options.turns))),  # noqa: B023
            "bytes_per_idle_session": round(bytes_per_idle_session(name, 10_000)),
        }
        if name.startswith("tao"):
            figures["planning_point_milliseconds_200_waiting"] = round(planning_point(name, 200), 3)
            figures["planning_point_milliseconds_1000_waiting"] = round(planning_point(name, 1_000), 3)
        for figure, value in figures.items():
            print(f"{name:14} {figure:44} {value:12,.3f}")
    report = {
        "benchmark": "core",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "sessions": options.sessions,
        "turns": options.turns,
        "results": results,
    }
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
