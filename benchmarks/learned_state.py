"""Saving what a full predictor has learned while the event loop runs: how much of the loop's time a save takes at a stretch.

`python benchmarks/learned_state.py` teaches a predictor and saves it as `tao serve --state-file` does, while the loop ticks.
Measured is the processor time between two ticks, which other processes do not change, and the encoding on the other
thread, which holds the interpreter.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tao.cli.serve import spare_the_collector
from tao.core.events import ToolCall
from tao.gateway.learned import LearnedFile
from tao.policies.returns import Absence, ReturnPredictor, make_predictor
from tao.record.learned import encode_learned

CALLS = 100_000
TOOLS = 5_000
SAVES = 10
STRETCH_SECONDS_MAX = 0.02


def taught() -> ReturnPredictor:
    """A predictor whose exported levels are full."""
    predictor = make_predictor()
    for number in range(CALLS):
        tool = ToolCall(f"tool-{number * 7919 % TOOLS}", "head")
        absence = Absence((tool,), f"tenant-{number % 20}", f"session-{number % 200}")
        predictor.learn(absence, 0.001 * (number * 104_729 % 100_003))
    return predictor


async def stretches(saving: asyncio.Task[None]) -> list[float]:
    """Processor seconds of this thread between two ticks, until `saving` is done."""
    found: list[float] = []
    while not saving.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        found.append(time.thread_time() - before)
    return sorted(found)


async def save_often(file: LearnedFile, predictor: ReturnPredictor) -> None:
    """Something is learned before each save, so that each writes."""
    for number in range(SAVES):
        predictor.learn(Absence((ToolCall("tool-0", "head"),), "tenant-0"), float(number))
        await file.save()


async def measure(predictor: ReturnPredictor, path: Path) -> bool:
    """Print the figures; whether they are within the bound."""
    loop = asyncio.get_running_loop()
    file = LearnedFile(path, predictor)
    began = time.thread_time()
    found = await stretches(loop.create_task(save_often(file, predictor)))
    each = (time.thread_time() - began) / SAVES
    state = predictor.export_state()
    began = time.thread_time()
    content = encode_learned(predictor.name, state)
    encoding = time.thread_time() - began
    print(f"file: {len(content) / 2**20:.2f} MiB")
    print(f"processor time on the event loop: {each * 1000:.0f} ms a save")
    print(
        f"at a stretch: {found[len(found) * 99 // 100] * 1000:.2f} ms p99, {found[-1] * 1000:.2f} ms at most"
    )
    print(f"encoding on the other thread: {encoding * 1000:.1f} ms")
    return max(found[-1], encoding) <= STRETCH_SECONDS_MAX


def main() -> int:
    """Teach, then measure; 1 where a save holds the loop for longer than `STRETCH_SECONDS_MAX`."""
    predictor = taught()
    spare_the_collector()
    with tempfile.TemporaryDirectory() as folder:
        within = asyncio.run(measure(predictor, Path(folder) / "learned.json"))
    if not within:
        print(
            f"a save holds the event loop for longer than {STRETCH_SECONDS_MAX * 1000:g} ms", file=sys.stderr
        )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
