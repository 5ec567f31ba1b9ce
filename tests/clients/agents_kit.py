"""What the tests of coding agents share: a task whose tool waits for the test, and what an operator sees meanwhile.

The first command of a task reads a named pipe. While nobody has written to it the tool runs, for as long as the test looks.
"""

import errno
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from gateway_kit import plain_http, until
from tao_process import TaoProcess, serve_arguments, tao

from tests.clients.agent_process import AgentProcess
from tests.clients.mini_swe_agent import COMPLETION_LINE

TOOL_SECONDS_MAX = 120.0  # from the start of an agent until its first tool runs
SCRIPT = f"""
[[rule]]
system = "title"
text = "Writing a greeting"

[[rule]]
turn = 1
text = "I write the file."
bash = "cat gate > greeting.txt"

[[rule]]
turn = 2
text = "I look whether it is right."
bash = "wc -l greeting.txt"

[[rule]] # mini-swe-agent is told so, and ends by it
turn_min = 3
anywhere = "{COMPLETION_LINE}"
bash = "echo {COMPLETION_LINE}"

[[rule]]
turn_min = 3
text = "The greeting is written."
"""


@dataclass(slots=True)
class Desk:
    """A running `tao serve` and what an operator asks it. `log`: where it records its events."""

    gateway: TaoProcess
    http: httpx.AsyncClient
    log: Path

    @property
    def url(self) -> str:
        return self.gateway.url

    async def sessions(self) -> list[dict[str, Any]]:
        """The open sessions of `/state`."""
        state = (await self.http.get("/state")).json()
        sessions = state["sessions"]
        assert isinstance(sessions, list)
        return sessions

    async def acting(self) -> dict[str, Any] | None:
        """The one session, while its tools run."""
        sessions = await self.sessions()
        assert len(sessions) <= 1, sessions
        return next((session for session in sessions if session["phase"] == "acting"), None)

    async def explain(self, session: str) -> dict[str, Any]:
        """`/explain/SESSION`."""
        answer = await self.http.get(f"/explain/{session}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def ended(self) -> list[dict[str, Any]]:
        """Stop the gateway; its recorded events of turns, each with its kind under `event`."""
        self.gateway.signal(signal.SIGTERM)
        assert await self.gateway.ended() == 0, self.gateway.story()
        assert b"Traceback" not in self.gateway.err, self.gateway.story()
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [
            {**fields, "event": kind}
            for line in lines
            for kind, fields in line.get("event", {}).items()
            if "turn" in fields
        ]


@asynccontextmanager
async def desk(*replicas: str, directory: Path) -> AsyncIterator[Desk]:
    """`tao serve` in front of these replicas, each of them up."""
    log = directory / "events.jsonl"
    async with tao(*serve_arguments(*replicas), "--record-log", str(log)) as gateway:
        await gateway.ready()
        async with plain_http(gateway.url) as http:

            async def is_ready() -> bool:
                return all((await http.get("/readyz")).json()["replicas"].values())

            try:
                await until(is_ready)
                yield Desk(gateway, http, log)
            except BaseException as error:
                error.add_note(gateway.story())
                raise


@asynccontextmanager
async def emulated_pair(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """Two `tao emulate` that answer by the script; their addresses."""
    script = directory / "script.toml"
    script.write_text(SCRIPT)
    arguments = ("emulate", "--port", "0", "--model", "tiny", "--speed", "10", "--script", str(script))
    async with tao(*arguments) as one, tao(*arguments) as other:
        await one.ready()
        await other.ready()
        yield one.url, other.url


async def writer_of(gate: Path, running: AgentProcess) -> int:
    """The pipe, opened for writing as soon as the agent's tool reads it; fails with what the agent wrote."""
    opened: list[int] = []

    def is_read() -> bool:
        try:
            opened.append(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads it
                raise
        return bool(opened) or not running.running()

    try:
        await until(is_read, TOOL_SECONDS_MAX)
    except AssertionError:
        raise AssertionError(f"its tool has not begun: {running.story()}") from None
    assert opened, f"it ended before its tool began: {running.story()}"
    return opened[0]
