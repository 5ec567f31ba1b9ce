"""The processes of a sweep: none is left behind when the one that started them is killed."""

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

import pytest
from gateway_kit import until

RUNS = ("--policy", "tao,round-robin", "--concurrency", "16,24", "--sessions", "40", "--replicas", "2")


def children(pid: int) -> list[int]:
    """Processes that this one started and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_children_end_with_a_parent_that_is_killed() -> None:
    command = [sys.executable, "-m", "tao", "simulate", "sample", *RUNS, "--processes", "2"]
    silent = asyncio.subprocess.DEVNULL
    parent = await asyncio.create_subprocess_exec(*command, stdout=silent, stderr=silent)
    try:
        # The third is multiprocessing's own, which watches over what the others share.
        await until(lambda: len(children(parent.pid)) == 3, 60.0)
        watched = [os.pidfd_open(child) for child in children(parent.pid)]
    finally:
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
    for child in watched:
        ended, _, _ = await asyncio.to_thread(select.select, [child], [], [], 30.0)
        os.close(child)
        assert ended, "a process goes on without its parent"
