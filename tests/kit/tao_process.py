"""`tao` commands as processes of their own: started, signalled, and surely ended with all that they started.

Each gets a process group of its own, so that a test can tell whether anything of it is left.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from gateway_kit import until

START_SECONDS_MAX = 30.0
END_SECONDS_MAX = 20.0


@dataclass(slots=True)
class TaoProcess:
    """A running command. `out` and `err`: what it has written so far."""

    process: asyncio.subprocess.Process
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        """The address that it announced."""
        found = re.search(rb"https?://[^\s)]+", self.out)
        return found.group().decode() if found else ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def ready(self) -> "TaoProcess":
        """Wait until it has announced its address."""
        await until(lambda: self.url or self.process.returncode is not None, START_SECONDS_MAX)
        assert self.url, self.story()
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, seconds_max: float = END_SECONDS_MAX) -> int:
        """Its exit code."""
        code = await asyncio.wait_for(self.process.wait(), seconds_max)
        await asyncio.gather(*self.readers)
        return code

    def group_lives(self) -> bool:
        """Whether any process of its group is left."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def story(self) -> str:
        return f"exit code {self.process.returncode}\n{self.out.decode()}\n{self.err.decode()}"

    async def _read(self, stream: asyncio.StreamReader, into: bytearray) -> None:
        while piece := await stream.read(65_536):
            into += piece


@asynccontextmanager
async def tao(*arguments: str) -> AsyncIterator[TaoProcess]:
    """`tao` with these arguments; its whole group is killed when the block ends."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tao", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
    )
    running = TaoProcess(process)
    assert process.stdout is not None
    assert process.stderr is not None
    for stream, into in ((process.stdout, running.out), (process.stderr, running.err)):
        running.readers.append(asyncio.ensure_future(running._read(stream, into)))
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await running.ended()


async def run_tao(*arguments: str, end_seconds_max: float = END_SECONDS_MAX) -> TaoProcess:
    """A command that ends by itself."""
    async with tao(*arguments) as process:
        await process.ended(end_seconds_max)
    return process


def serve_arguments(*urls: str, config: str | None = None) -> list[str]:
    """`tao serve` on a free port in front of these replicas."""
    replicas = [argument for url in urls for argument in ("--replica", url)]
    return ["serve", "--port", "0", *replicas, *(("--config", config) if config is not None else ())]
