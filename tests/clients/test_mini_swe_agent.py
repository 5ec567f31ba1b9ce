"""mini-swe-agent from its package, unmodified, does a small bash task through the gateway: one session, tools named."""

import asyncio
import json
from pathlib import Path

import pytest
from gateway_kit import emulated, fronted, until

from tao.core.events import TurnFinished, TurnKind
from tao.emulator import parse_script
from tests.clients.mini_swe_agent import COMPLETION_LINE, executable, run_task

SCRIPT = parse_script(
    f"""
[[rule]]
turn = 1
text = "I write the file."
bash = "printf 'hello\\nworld\\n' > greeting.txt"

[[rule]]
turn = 2
text = "I look whether it is right."
bash = "wc -l greeting.txt"

[[rule]]
turn_min = 3
text = "It is."
bash = "echo {COMPLETION_LINE}"
""",
    "script.toml",
)


def is_installed() -> bool:
    try:
        executable()
    except FileNotFoundError:
        return False
    return True


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="mini-swe-agent is not installed: run `make clients`")
async def test_a_small_bash_task(tmp_path: Path) -> None:
    async with emulated(script=SCRIPT, model="tiny") as replica, fronted(replica.url) as front:
        await asyncio.to_thread(run_task, f"{front.url}/v1", "Write two lines to greeting.txt.", tmp_path)
        await until(lambda: not front.turns())
        (session,) = (await front.sessions()).values()
        assert session["turns_finished"] == 3
        assert {event.kind for event in front.events_of_turns()} == {TurnKind.MAIN}
        finished = front.events(TurnFinished)
        assert [[(tool.name, tool.command_head) for tool in event.tools] for event in finished] == [
            [("bash", "printf")],
            [("bash", "wc")],
            [("bash", "echo")],
        ]
        assert finished[-1].usage.cached_tokens > 0
        assert (
            session["footprint_tokens"] == finished[-1].usage.prompt_tokens + finished[-1].usage.output_tokens
        )
    assert (tmp_path / "greeting.txt").read_text() == "hello\nworld\n"
    trajectory = json.loads((tmp_path / "trajectory.json").read_text())
    assert trajectory["info"]["exit_status"] == "Submitted"
