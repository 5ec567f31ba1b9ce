"""`tao demo` as a process: it compares, it says how, and it leaves nothing running, however it ends."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from gateway_kit import until
from tao_process import run_tao, tao

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc"),
]

SHORT = ("--sessions", "3", "--concurrency", "3", "--speed", "300", "--kv-tokens", "30000")


def descendants(pid: int) -> list[int]:
    """All living processes below this one."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except FileNotFoundError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_short_demo(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    demo = await run_tao("demo", "--policy", "tao", *SHORT, "--json", str(out), end_seconds_max=90.0)
    assert demo.process.returncode == 0, demo.story()
    text = demo.out.decode()
    assert "Same agents, same replicas (model seconds)" in text
    assert "prefix hit rate" in text
    assert "/state while it runs" in text
    (run,) = json.loads(await asyncio.to_thread(out.read_text))["runs"]
    assert run["policy"] == "tao"
    assert run["turns"] > 0
    assert run["turns_failed"] == 0


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
async def test_an_interrupted_demo_leaves_nothing_running(numbers: tuple[signal.Signals, ...]) -> None:
    async with tao("demo", "--speed", "5") as demo:
        await demo.ready()  # the gateway has announced itself, so two replicas, gateway and planner run
        started = descendants(demo.pid)
        assert len(started) == 4
        for number in numbers:
            demo.signal(number)
        assert await demo.ended() == 130, demo.story()
        await until(lambda: not any(map(alive, started)))
        assert b"Traceback" not in demo.err
        if len(numbers) == 1:
            assert b"nothing is left running" in demo.out
