"""The return predictor: a million completed calls of 50,000 distinct tools. Time of `learn` and `predict`, memory, flood.

`python benchmarks/predictor.py [--calls N]` prints one line a figure and keeps them in benchmarks/results/predictor.json.
Time is processor time of the thread, less what reading its clock takes. Bounds: memory at most 64 MiB, `learn` and
`predict` together at most 20 us (median), and no client can make the state larger by inventing names.
"""

import argparse
import json
import os
import random
import statistics
import time
import tracemalloc
from pathlib import Path

from tao.core.events import ToolCall
from tao.policies.returns import Absence, ReturnPredictor, make_predictor

RESULTS = Path(__file__).parent / "results" / "predictor.json"
TOOLS = 50_000
MEMORY_BYTES_MAX = 64 * 2**20
MICROSECONDS_MAX = 20.0


def drawn_calls(calls: int, tools: int, seed: int) -> list[tuple[Absence, float]]:
    """Tools by a Zipf-like law with some of every kind, log-normal durations, 200 sessions of 20 tenants at a time."""
    chance = random.Random(seed)
    drawn: list[tuple[Absence, float]] = []
    for index in range(calls):
        tool = min(int(tools ** chance.random()) - 1, tools - 1) if index % 2 else chance.randrange(tools)
        call = ToolCall(f"tool-{tool}", "head", None, chance.choice((None, 120.0)))
        session = index // 20_000 * 200 + chance.randrange(200)
        drawn.append(
            (Absence((call,), f"tenant-{session % 20}", f"session-{session}"), chance.lognormvariate(0, 2))
        )
    return drawn


def flood(predictor: ReturnPredictor, calls: int) -> None:
    """Every call has a new name, of the longest kind, in a new session: what an adversary would send."""
    for index in range(calls):
        name = f"{index:08d}" + "\N{GRINNING FACE}" * 64
        call = ToolCall(name, name, None, None)
        absence = Absence((call,), name, name)
        predictor.learn(absence, float(index % 977))
        predictor.predict(absence)


def microseconds_of(predictor: ReturnPredictor, calls: int) -> dict[str, float]:
    """Of `learn` and `predict` of one call, and of the first question that a forecast is asked."""
    clock = time.thread_time_ns
    readings = [-clock() + clock() for _ in range(10_000)]
    reading = statistics.median(readings)
    both: list[float] = []
    asking: list[float] = []
    for start in range(0, calls, 100_000):
        for absence, seconds in drawn_calls(min(100_000, calls - start), TOOLS, start):
            began = clock()
            predictor.learn(absence, seconds)
            forecast = predictor.predict(absence)
            done = clock()
            both.append((done - began - reading) / 1e3)
            if len(both) % 100 == 0:
                began = clock()
                forecast.survival(1.0)
                asking.append((clock() - began - reading) / 1e3)
    return {
        "learn_and_predict_median": statistics.median(both),
        "learn_and_predict_p99": sorted(both)[len(both) * 99 // 100],
        "first_question_median": statistics.median(asking),
    }


def bytes_of(name: str, calls: int, *, flooded: bool) -> int:
    """What a predictor holds after so many calls, or after a flood of invented names."""
    tracemalloc.start()
    measured = make_predictor(name)
    if flooded:
        flood(measured, min(calls, 100_000))
    else:
        for start in range(0, calls, 100_000):
            for absence, seconds in drawn_calls(min(100_000, calls - start), TOOLS, start):
                measured.learn(absence, seconds)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size


def main() -> None:
    """Print the figures; exit with an assertion where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--predictor", default="backoff-histogram")
    options = parser.parse_args()
    microseconds = microseconds_of(make_predictor(options.predictor), options.calls)
    mebibytes = {
        "calls": bytes_of(options.predictor, options.calls, flooded=False) / 2**20,
        "flood_of_names": bytes_of(options.predictor, options.calls, flooded=True) / 2**20,
    }
    figures = {
        "predictor": options.predictor,
        "calls": options.calls,
        "tools": TOOLS,
        "load_average": round(os.getloadavg()[0], 1),
        "microseconds": {name: round(value, 1) for name, value in microseconds.items()},
        "memory_mebibytes": {name: round(value, 1) for name, value in mebibytes.items()},
    }
    print(json.dumps(figures, indent=2))
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    assert max(mebibytes.values()) * 2**20 <= MEMORY_BYTES_MAX, "the predictor is too large"
    assert microseconds["learn_and_predict_median"] <= MICROSECONDS_MAX, "the predictor is too slow"


if __name__ == "__main__":
    main()
