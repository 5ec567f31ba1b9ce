"""Claude Code's hook: the script as Claude Code runs it, against a running gateway and one that is down; and the command."""

import asyncio
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gateway_kit import until

from tao.cli import main
from tao.client.hook import tool_event
from tests.client.test_client_tools import COST_SECONDS_MAX, nowhere, silent_server
from tests.gateway_tools.tools_kit import acting, is_over, turn

HEADERS = {"x-claude-code-session-id": "cc-1", "x-api-key": "key-1"}


def said(event: str, tool: str = "Bash", **more: Any) -> dict[str, Any]:
    """What Claude Code writes to a hook's standard input."""
    return {
        "session_id": "cc-1",
        "transcript_path": "cc-1.jsonl",
        "cwd": "/src/p",
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": tool,
        "tool_input": {"command": "make test", "description": "Run the tests"},
        "tool_use_id": "toolu_1",
        **more,
    }


def commands(*options: str) -> dict[str, str]:
    """The command of each hook that is printed."""
    printed = CliRunner().invoke(main, ["hooks", "claude-code", *options])
    assert printed.exit_code == 0, printed.output
    hooks = json.loads(printed.output)["hooks"]
    return {event: groups[0]["hooks"][0]["command"] for event, groups in hooks.items()}


def run_hook(command: str, document: object, environment: dict[str, str]) -> float:
    """Run a hook as Claude Code does, in a shell, and wait for its pipes too; how long it took."""
    text = document if isinstance(document, str) else json.dumps(document)
    started = time.perf_counter()
    done = subprocess.run(
        command,
        shell=True,
        input=text.encode(),
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", **environment},
        timeout=10,
        check=False,
    )
    elapsed = time.perf_counter() - started
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return elapsed


async def test_the_hooks_report_start_and_end_of_a_tool() -> None:
    async with acting("Bash", headers=HEADERS) as (front, _):
        hooks = commands()
        environment = {"ANTHROPIC_BASE_URL": front.url, "ANTHROPIC_API_KEY": "key-1"}
        await asyncio.to_thread(run_hook, hooks["PreToolUse"], said("PreToolUse"), environment)

        async def seen() -> bool:
            return bool((await front.http.get("/explain/cc-1")).json()["reported_calls"])

        await until(seen)
        assert not is_over(front, "cc-1")
        response = said("PostToolUse", tool_response={"stdout": "x" * 200_000})
        await asyncio.to_thread(run_hook, hooks["PostToolUse"], response, environment)
        await until(lambda: is_over(front, "cc-1"))
        (call,) = (await front.http.get("/explain/cc-1")).json()["reported_calls"]
        assert (call["call_id"], call["tool"], call["state"]) == ("toolu_1", "Bash", "ended")


async def test_a_tool_that_failed_has_ended_too() -> None:
    """Claude Code then runs `PostToolUseFailure` in place of `PostToolUse`."""
    async with acting("Bash", headers=HEADERS) as (front, _):
        hook = commands("--url", front.url)["PostToolUseFailure"]
        failed = said("PostToolUseFailure", error="exit code 2", is_interrupt=False)
        await asyncio.to_thread(run_hook, hook, failed, {"ANTHROPIC_API_KEY": "key-1"})
        await until(lambda: is_over(front, "cc-1"))
        (call,) = (await front.http.get("/explain/cc-1")).json()["reported_calls"]
        assert (call["call_id"], call["state"]) == ("toolu_1", "ended")


async def test_a_tool_of_a_sub_agent_is_reported_under_its_own_session() -> None:
    token = {"authorization": "Bearer token-1"}
    headers = {"x-claude-code-session-id": "cc-1", **token}
    async with acting("Task", headers=headers) as (front, engine):
        await turn(front, engine, "Bash", headers={**headers, "x-claude-code-agent-id": "a7"})
        hook = commands("--url", front.url)["PostToolUse"]
        document = said("PostToolUse", agent_id="a7", agent_type="Explore")
        await asyncio.to_thread(run_hook, hook, document, {"ANTHROPIC_AUTH_TOKEN": "token-1"})
        await until(lambda: is_over(front, "cc-1:a7"))
        assert not is_over(front, "cc-1")


@pytest.mark.parametrize("gateway", ["down", "silent"])
def test_a_gateway_that_is_down_costs_a_tool_at_most_50_milliseconds(gateway: str) -> None:
    """Beyond an interpreter that does nothing, by the best of some runs each: a busy machine is not the hook's doing."""
    with silent_server() as silent:
        url = nowhere() if gateway == "down" else silent
        hook = commands("--url", url)["PreToolUse"]
        nothing = shlex.join([sys.executable, "-I", "-S", "-c", "pass"])
        runs = [(run_hook(hook, said("PreToolUse"), {}), run_hook(nothing, "", {})) for _time in range(15)]
        with_hook, without = (min(times) for times in zip(*runs, strict=True))
        assert with_hook - without < COST_SECONDS_MAX


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        "null",
        '{"hook_event_name":"PreToolUse"}',
        '{"hook_event_name":"Stop","session_id":"s"}',
    ],
)
def test_nothing_that_is_said_to_the_hook_fails_the_tool(document: str) -> None:
    run_hook(commands("--url", nowhere())["PreToolUse"], document, {})


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://[::1", "http://nobody.invalid:1", "https://127.0.0.1:9"]
)
def test_no_address_fails_the_tool(url: str) -> None:
    run_hook(commands()["PreToolUse"], said("PreToolUse"), {"TAO_URL": url})


def test_what_the_hook_makes_of_what_it_is_told() -> None:
    assert tool_event(said("PreToolUse")) == {
        "session": "cc-1",
        "event": "start",
        "call_id": "toolu_1",
        "tool": "Bash",
    }
    assert tool_event(said("PostToolUse", agent_id="a7")) == {
        "session": "cc-1:a7",
        "event": "end",
        "call_id": "toolu_1",
        "tool": "Bash",
    }
    assert tool_event(said("Stop")) is None
    assert tool_event(said("PreToolUse", tool_use_id=None)) is not None


# --- installing -----------------------------------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    "model": "opus",
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check.sh"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "say 'fertig – ü'"}]}],
    },
}


def invoke(*options: str) -> Result:
    return CliRunner().invoke(main, ["hooks", "claude-code", *options])


def test_installing_keeps_everything_else_and_may_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(OTHERS))
    path.chmod(0o640)
    for _time in range(2):
        assert invoke("--install", str(path)).exit_code == 0
    settings = json.loads(path.read_text())
    assert {name: settings[name] for name in ("model", "permissions")} == {
        name: OTHERS[name] for name in ("model", "permissions")
    }
    assert settings["hooks"]["Stop"] == OTHERS["hooks"]["Stop"]
    assert settings["hooks"]["PreToolUse"][0] == OTHERS["hooks"]["PreToolUse"][0]
    events = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
    assert [len(settings["hooks"][event]) for event in events] == [2, 1, 1]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
    assert invoke("--remove", str(path)).exit_code == 0
    assert json.loads(path.read_text()) == OTHERS


def test_installing_anew_replaces_the_address(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.json"
    invoke("--install", str(path), "--url", "http://old:1")
    invoke("--install", str(path), "--url", "http://new:2")
    assert "old" not in path.read_text()
    assert path.read_text().count("http://new:2") == 3
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_settings_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_text("{}")
    link.symlink_to(real)
    invoke("--install", str(link))
    assert link.is_symlink()
    assert "PreToolUse" in real.read_text()


def test_installing_without_a_path_is_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    told = invoke("--install")
    assert told.exit_code == 0
    assert "PreToolUse" in (tmp_path / ".claude" / "settings.json").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON and was left alone"),
        ('{"x": ' + "1" * 5_000 + "}", "is no JSON and was left alone"),
        ("[1]", "does not hold settings of Claude Code"),
        ('{"hooks": []}', "does not hold settings of Claude Code"),
        ('{"hooks": {"PreToolUse": {}}}', "does not hold settings of Claude Code"),
        ('{"hooks": {"PreToolUse": ["x"]}}', "has a hook that is none"),
    ],
)
def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    told = invoke("--install", str(path))
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())
    assert path.read_text() == text


def test_half_a_surrogate_pair_stays_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(r'{"env": {"x": "\ud800"}}')
    assert invoke("--install", str(path)).exit_code == 0
    assert json.loads(path.read_text())["env"] == {"x": "\ud800"}
    assert [file.name for file in tmp_path.iterdir()] == ["settings.json"]


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    told = invoke("--install", str(tmp_path / "a"))
    assert told.exit_code == 2
    assert "cannot be read" in " ".join(told.output.split())


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = invoke("--install", str(tmp_path / "file" / "settings.json"))
    assert told.exit_code == 2


def test_installing_and_removing_at_once_is_refused(tmp_path: Path) -> None:
    told = invoke("--install", str(tmp_path / "a"), "--remove", str(tmp_path / "a"))
    assert told.exit_code == 2
    assert "exclude each other" in told.output


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is no http(s) URL; write it like http://127.0.0.1:8100"),
        ("127.0.0.1:8100", "is no http(s) URL"),
        ("localhost:8100", "is no http(s) URL"),
        ("ftp://127.0.0.1", "is no http(s) URL"),
        ("http://:8100", "is no http(s) URL"),
        ("http://127.0.0.1:0", "is no http(s) URL"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1 :8100", "--url"),
        ("http://ga te:8100", "has characters that no URL may have"),
        ("http://me:secret@gateway:8100", "has more than host, port and path"),
        ("http://gateway:8100?x=1", "has more than host, port and path"),
    ],
)
def test_an_address_that_is_none_is_refused_and_nothing_is_written(
    tmp_path: Path, url: str, says: str
) -> None:
    path = tmp_path / "settings.json"
    refused = invoke("--url", url, "--install", str(path))
    assert refused.exit_code == 2, refused.output
    assert says in refused.output
    assert not path.exists()
    assert invoke("--url", url).exit_code == 2


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8100", "https://gateway.example/", "http://[::1]:8100/v1", "http://host/below"]
)
def test_addresses_as_people_have_them(url: str) -> None:
    assert url in commands("--url", url)["PreToolUse"]
