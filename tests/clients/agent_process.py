"""An agent as a process: started in an environment of its own, and surely ended with all that it started.

Agents start their tools in sessions of their own, so a process group does not hold them all. Each process of a run carries a
mark in its environment instead, by which it is found in /proc and killed.
"""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway_kit import until

from tests.clients.agents import Launch

MARK = "TAO_TEST_RUN"
KILL_SECONDS_MAX = 10.0


@dataclass(slots=True)
class AgentProcess:
    """A running agent. `out`: what it has written so far, standard error included."""

    process: asyncio.subprocess.Process
    mark: str
    out: bytearray = field(default_factory=bytearray)
    reader: asyncio.Task[None] | None = None

    async def ended(self, seconds_max: float) -> int:
        """Its exit code; AssertionError, with what it wrote, when it takes longer than `seconds_max`."""
        try:
            return await asyncio.wait_for(self.process.wait(), seconds_max)
        except TimeoutError:
            raise AssertionError(f"not done in {seconds_max} s: {self.story()}") from None

    def running(self) -> bool:
        return self.process.returncode is None

    def story(self) -> str:
        return f"exit code {self.process.returncode}\n{self.out.decode(errors='replace')[-4000:]}"

    def leftovers(self) -> list[int]:
        """Process ids of what this run started and has not ended."""
        return [pid for pid in processes() if self.mark.encode() in environment_of(pid)]

    async def assert_nothing_left(self) -> None:
        """It has ended, and all that it started ends with it."""
        await until(lambda: not self.leftovers())

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(65_536):
            self.out += piece


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def environment_of(pid: int) -> bytes:
    """Empty for one that has ended or is somebody else's."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


@asynccontextmanager
async def agent(launch: Launch, home: Path, directory: Path) -> AsyncIterator[AgentProcess]:
    """The agent at work in `directory`; whatever it has started is killed when the block ends."""
    for name, text in launch.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = str(uuid.uuid4())
    process = await asyncio.create_subprocess_exec(
        *launch.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory,
        env={**launch.environment, MARK: run},
        start_new_session=True,
    )
    running = AgentProcess(process, f"{MARK}={run}")
    assert process.stdout is not None
    running.reader = asyncio.ensure_future(running._read(process.stdout))
    try:
        yield running
    finally:
        await end(running)


async def end(running: AgentProcess) -> None:
    """Kill all of the run, until nothing of it is left."""

    def is_gone() -> bool:
        left = running.leftovers()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    await until(is_gone, KILL_SECONDS_MAX)
    await asyncio.wait_for(running.process.wait(), KILL_SECONDS_MAX)
    if running.reader is not None:
        await asyncio.wait_for(running.reader, KILL_SECONDS_MAX)
