"""Speed of the engine model alone: turns per second on one core, four replicas, real session shapes.

usage: python benchmarks/enginemodel.py [--turns N] [--workers W] [--prompt LOW:HIGH]
A closed loop: each worker runs one session's turns, round-robin over the replicas, its prompt growing from LOW to
HIGH tokens by 300 to 1,500 a turn; the target of the simulator (20,000 turns/s in all) leaves the model 25 us a turn.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time

from tao.enginemodel import Chain, EngineModel, Finished, Request, load_profile


def run(turns: int, workers: int, low: int, high: int, profile_name: str) -> dict[str, float]:
    rng = random.Random(0)
    profile = load_profile(profile_name)
    replicas = [EngineModel(profile) for _ in range(4)]
    system = Chain.of([("system", 3000)])
    heap: list[tuple[float, int, int, str]] = []  # (at, number, replica or -1, worker)
    prompts: dict[str, Chain] = {}
    number = submitted = finished = 0
    armed = [0.0] * 4
    for worker in range(workers):
        heapq.heappush(heap, (rng.random(), worker, -1, str(worker)))
        prompts[str(worker)] = system.extended(("start", worker), low)
    number = workers
    sources: dict[str, str] = {}
    started = time.perf_counter()
    while finished < turns:
        at, _, replica, name = heapq.heappop(heap)
        if replica < 0:
            submitted += 1
            replica = submitted % 4
            sources[f"{submitted}"] = name
            request = Request(f"{submitted}", prompts[name], rng.randrange(50, 600))
            prompts[name] = request.conversation()
            replicas[replica].submit(at, request)
        elif armed[replica] != at:
            continue
        else:
            for event in replicas[replica].advance(at):
                if isinstance(event, Finished):
                    finished += 1
                    worker_name = sources.pop(event.request_id)
                    chain = prompts[worker_name].extended(("tool", number), rng.randrange(300, 1500))
                    if chain.tokens > high:
                        chain = system.extended(("start", number), low)
                    prompts[worker_name] = chain
                    number += 1
                    heapq.heappush(heap, (at + rng.random() * 5, number, -1, worker_name))
        due = replicas[replica].next_event_at()
        if due is not None and armed[replica] != due:
            armed[replica] = due
            number += 1
            heapq.heappush(heap, (due, number, replica, ""))
    seconds = time.perf_counter() - started
    stats = [replica.stats() for replica in replicas]
    queries, hits = sum(s.prefix_query_tokens for s in stats), sum(s.prefix_hit_tokens for s in stats)
    return {
        "turns_per_second": turns / seconds,
        "microseconds_per_turn": 1e6 * seconds / turns,
        "model_seconds": at,
        "hit_rate": hits / queries,
        "preemptions": sum(s.preemptions for s in stats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--prompt", default="20000:90000")
    parser.add_argument("--profile", default="qwen3-32b-tp2-h100")
    arguments = parser.parse_args()
    low, high = map(int, arguments.prompt.split(":"))
    for key, value in run(arguments.turns, arguments.workers, low, high, arguments.profile).items():
        print(f"{key:24} {value:14.4f}")


if __name__ == "__main__":
    main()
