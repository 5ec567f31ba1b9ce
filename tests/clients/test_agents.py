"""Claude Code, Codex, OpenCode and mini-swe-agent, unmodified, do a scripted task through `tao serve` and two emulated
replicas: each run is one session, whose tool is named while it runs.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gateway_kit import until

from tests.clients.agent_process import agent
from tests.clients.agents import AGENTS, Agent, Job
from tests.clients.agents_kit import Desk, desk, emulated_pair, writer_of

# Some of the programs take ten seconds and more to start on a busy machine.
pytestmark = [
    pytest.mark.agents,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

TASK = "Write one line with a greeting to greeting.txt."
TASK_SECONDS_MAX = 120.0
GREETING = "hello\n"
SIDE_TURNS = {"opencode": 1}  # it asks for a title


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    """Two emulated replicas for all agents; each agent gets a gateway of its own."""
    async with emulated_pair(tmp_path_factory.mktemp("replicas")) as pair:
        yield pair


@pytest.mark.parametrize("name", AGENTS)
async def test_a_task_is_one_session_with_its_tools_named(
    name: str, replicas: tuple[str, str], tmp_path: Path
) -> None:
    program = AGENTS[name]
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    os.mkfifo(work / "gate")
    async with (
        desk(*replicas, directory=tmp_path) as front,
        agent(program.launch(Job(front.url, TASK, home)), home, work) as running,
    ):
        pipe = await writer_of(work / "gate", running)
        session = await assert_tool_is_named(front, program)
        os.write(pipe, GREETING.encode())
        os.close(pipe)
        assert await running.ended(TASK_SECONDS_MAX) == 0, running.story()
        await running.assert_nothing_left()
        await assert_it_is_the_only_session(front, session, turns=3 + SIDE_TURNS.get(name, 0))
        assert_events(await front.ended(), program)
    assert (work / "greeting.txt").read_text() == GREETING


async def assert_tool_is_named(front: Desk, program: Agent) -> str:
    """While the tool runs, `/state` shows its name and `/explain` the head of its command; the session's id."""
    await until(front.acting)
    session = await front.acting()
    assert session is not None
    assert session["tools"] == [program.shell_tool]
    told = await front.explain(session["id"])
    (evidence,) = told["tool_evidence"]
    assert evidence["tools"] == [{"name": program.shell_tool, "command_head": "cat"}]
    assert told["home"] == session["home"] is not None
    assert told["values"]["return"]["tools"] == [f"{program.shell_tool} cat"]
    return str(session["id"])


async def assert_it_is_the_only_session(front: Desk, session: str, turns: int) -> None:
    (state,) = await front.sessions()
    assert state["id"] == session
    assert state["turns_finished"] == turns
    assert state["footprint_tokens"] > 0


def assert_events(events: list[dict[str, Any]], program: Agent) -> None:
    """Every turn has finished, the tools are those of the script, and later turns found their prefix."""
    kinds = {event["event"] for event in events}
    assert not kinds & {"ClientLeft", "TurnFailed", "TurnStopped"}, kinds
    finished = [event for event in events if event["event"] == "TurnFinished"]
    calls = [(tool["name"], tool["command_head"]) for event in finished for tool in event["tools"]]
    last = [(program.shell_tool, "echo")] if program.name == "mini-swe-agent" else []
    assert calls == [(program.shell_tool, "cat"), (program.shell_tool, "wc"), *last]
    for event in finished[-2:]:
        usage = event["usage"]
        assert 0 < usage["cached_tokens"] <= usage["prompt_tokens"]
        assert usage["cached_tokens"] > 0.9 * usage["prompt_tokens"]
