"""The return predictor: a million completed calls of 50,000 distinct tools. Time of `learn` and `predict`, memory, flood.

`python benchmarks/predictor.py [--calls N]` prints one line a figure. Bounds: memory at most 64 MiB, `learn` and `predict`
together at most 20 us (median), and no client can make the state larger by inventing names.
"""

import argparse
import random
import statistics
import time
import tracemalloc

from tao.core.events import ToolCall
from tao.policies.returns import Absence, ReturnPredictor, make_predictor

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


def main() -> None:
    """Print the figures; exit with an assertion where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--predictor", default="backoff-histogram")
    options = parser.parse_args()
    predictor = make_predictor(options.predictor)
    microseconds: list[float] = []
    for start in range(0, options.calls, 100_000):
        for absence, seconds in drawn_calls(min(100_000, options.calls - start), TOOLS, start):
            began = time.perf_counter()
            predictor.learn(absence, seconds)
            predictor.predict(absence)
            microseconds.append((time.perf_counter() - began) * 1e6)
    median = statistics.median(microseconds)
    print(
        f"learn + predict: median {median:.1f} us, p99 {sorted(microseconds)[len(microseconds) * 99 // 100]:.1f} us"
    )
    for name, fill in (("calls", False), ("flood of names", True)):
        tracemalloc.start()
        measured = make_predictor(options.predictor)
        if fill:
            flood(measured, min(options.calls, 100_000))
        else:
            for start in range(0, options.calls, 100_000):
                for absence, seconds in drawn_calls(min(100_000, options.calls - start), TOOLS, start):
                    measured.learn(absence, seconds)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        print(f"memory after {name}: {size / 2**20:.1f} MiB")
        assert size <= MEMORY_BYTES_MAX, "the predictor is too large"
    assert median <= MICROSECONDS_MAX, "the predictor is too slow"


if __name__ == "__main__":
    main()
