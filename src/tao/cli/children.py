"""Other `tao` commands run as child processes: started, waited for until they say their address, and ended for sure.

It knows processes and the one line that a serving command prints when it is ready; what the commands do, it does not know.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 5.0
OUTPUT_LINES_KEPT = 40

_ADDRESS = re.compile(r"https?://[^\s)]+")


class ChildError(RuntimeError):
    """A child did not start, or ended early; the message carries the last lines it wrote."""


class Child:
    """A running `tao` command. `url`: the address that it announced."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.url = ""
        self._process = process
        self._lines: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def wait_until_ready(self) -> None:
        """Read until the child names its address."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                while not self.url:
                    line = await self._process.stdout.readline()
                    if not line:
                        raise ChildError(self._story("ended before it was ready"))
                    self._keep(line)
                    found = _ADDRESS.search(self._lines[-1]) if self._lines[-1].startswith("tao ") else None
                    self.url = found.group().rstrip("/") if found else ""
        except TimeoutError:
            raise ChildError(self._story(f"was not ready after {START_SECONDS_MAX:g} s")) from None
        self._reading = asyncio.get_running_loop().create_task(self._drain())

    async def stop(self) -> None:
        """Ask it to end, then make it."""
        try:
            await self._end()
        finally:  # also where the wait is cancelled: a second Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                if self._process.returncode is None:
                    os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _end(self) -> None:
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            self._process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()

    async def _drain(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._lines.append(line.decode("utf-8", "replace").rstrip())
        del self._lines[:-OUTPUT_LINES_KEPT]

    def _story(self, what: str) -> str:
        return f"{self.name} {what}:\n  " + "\n  ".join(self._lines or ["(it wrote nothing)"])


@contextlib.asynccontextmanager
async def running(name: str, arguments: Sequence[str]) -> AsyncIterator[Child]:
    """`tao` with these arguments, ready to serve; ended when the block is left, however it is left.

    The child gets a session of its own: a Ctrl-C in the terminal reaches the parent alone, which ends its children.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tao",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    child = Child(name, process)
    try:
        await child.wait_until_ready()
        yield child
    finally:
        await asyncio.shield(child.stop())
