"""The LiteLLM callback: with LiteLLM itself where it is installed, and by its documented methods everywhere."""

import asyncio
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import fronted, until

from tao.client import ToolEvents
from tao.client.litellm import LiteLLMToolEvents, tool_callback
from tao.core.events import ToolFinished
from tests.client.test_client_tools import COST_SECONDS_MAX, cost_seconds, nowhere, silent_server
from tests.clients.mini_swe_agent import executable
from tests.gateway_tools.tools_kit import acting, is_over

ROOT = Path(__file__).resolve().parents[2]


def python_with_litellm() -> Path | None:
    try:
        python = executable().parent / "python"
    except FileNotFoundError:
        return None
    return python if python.exists() else None


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.skipif(python_with_litellm() is None, reason="LiteLLM is not installed: run `make clients`")
async def test_litellm_reports_the_tools_of_an_agent_that_has_no_session_id() -> None:
    async with (
        fake_engine(default=says("done", counts=usage(400, 10))) as engine,
        fronted(engine.url) as front,
    ):
        modes = ["sync", "async", "stream"]
        for mode in modes:
            engine.then(says("ok", tools=[f"bash-{mode}"], counts=usage(300, 20)), says("done"))
        command = [str(python_with_litellm()), str(Path(__file__).parent / "litellm_agent.py"), front.url]
        environment = {
            "PYTHONPATH": str(ROOT / "src"),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PATH": "/usr/bin:/bin",
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, *modes],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for mode, seen in zip(modes, told, strict=True):
            assert [(call["tool"], call["state"]) for call in seen["before"]] == [(f"bash-{mode}", "running")]
            assert [call["tool"] for call in seen["after"]] == [f"bash-{mode}"]
            assert seen["dropped"] == 0


# --- by its documented methods ------------------------------------------------------------------------------


def answer(session: str | None, *calls: tuple[str, str]) -> Any:
    """A response as LiteLLM hands it to a callback."""
    tool_calls = [SimpleNamespace(id=call_id, function=SimpleNamespace(name=name)) for call_id, name in calls]
    headers = {} if session is None else {"llm_provider-x-tao-session": session}
    return SimpleNamespace(
        choices=[SimpleNamespace(message=SimpleNamespace(tool_calls=tool_calls))],
        _hidden_params={"additional_headers": headers},
    )


def results(*call_ids: str) -> list[dict[str, Any]]:
    """A conversation that ends with the results of these calls."""
    return [
        {"role": "tool", "tool_call_id": "older", "content": "x"},
        {"role": "assistant", "content": None},
        *({"role": "tool", "tool_call_id": call_id, "content": "ok"} for call_id in call_ids),
    ]


async def test_tools_begin_with_the_answer_and_end_with_the_next_request() -> None:
    async with acting("bash", "read") as (front, _):
        events = ToolEvents(front.url)
        callback = LiteLLMToolEvents(events)
        await callback.async_log_success_event(
            {}, answer("public/s", ("a", "bash"), ("b", "read")), None, None
        )
        callback.log_pre_api_call("m", results("a"), {})
        await asyncio.to_thread(events.flush)
        assert not is_over(front)
        callback.log_pre_api_call("m", results("a", "b"), {})
        await until(lambda: front.events(ToolFinished))
        events.close()


@pytest.mark.parametrize(
    "response",
    [None, answer(None, ("a", "bash")), SimpleNamespace(choices=None), answer("s"), answer("s", ("", ""))],
)
def test_responses_that_say_nothing_are_passed_over(response: Any) -> None:
    callback = LiteLLMToolEvents(ToolEvents("http://127.0.0.1:9"))
    callback.log_success_event({"response_headers": None}, response, None, None)
    callback.log_success_event(None, response, None, None)
    callback.log_pre_api_call("m", None, {})
    callback.log_pre_api_call("m", ["x", {"role": "tool"}], {})
    assert not callback._open


@pytest.mark.parametrize("gateway", ["down", "silent"])
def test_a_gateway_that_is_down_costs_an_agent_next_to_nothing(gateway: str) -> None:
    """Both ends of its calls; the best of some rounds, since a busy machine is not the callback's doing."""
    with silent_server() as silent:
        events = ToolEvents(nowhere() if gateway == "down" else silent)
        callback = LiteLLMToolEvents(events)

        def round_trip() -> None:
            callback.log_success_event({}, answer("s", ("a", "bash"), ("b", "read")), None, None)
            callback.log_pre_api_call("m", results("a", "b"), {})

        assert min(cost_seconds(round_trip, 10) for _round in range(5)) < COST_SECONDS_MAX
        events.close()


def test_open_calls_are_bounded() -> None:
    callback = LiteLLMToolEvents(ToolEvents("http://127.0.0.1:9"))
    for number in range(5000):
        callback.log_success_event({}, answer("s", (f"c{number}", "bash")), None, None)
    assert len(callback._open) == 4096
    callback._events.close()


def test_an_id_that_several_sessions_had_open_at_a_time_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models number their calls afresh in each answer; whose such a call is, its result does not tell."""
    events, told = ToolEvents("http://127.0.0.1:9"), list[dict[str, Any]]()
    monkeypatch.setattr(events.sender, "send", told.append)
    callback = LiteLLMToolEvents(events)
    numbered = ("functions.bash:0", "bash")
    for session in ("a", "b"):
        callback.log_success_event({}, answer(session, numbered, (f"own-{session}", "read")), None, None)
    callback.log_pre_api_call("m", results(numbered[0], "own-a"), {})
    callback.log_success_event({}, answer("a", numbered), None, None)
    callback.log_pre_api_call("m", results(numbered[0], "own-b"), {})
    ends = [(event["session"], event["call_id"]) for event in told if event["event"] == "end"]
    assert ends == [("a", "own-a"), ("b", "own-b")], "the last result was b's, while a's tool runs"


def test_an_id_that_one_session_uses_again_ends_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    events, told = ToolEvents("http://127.0.0.1:9"), list[dict[str, Any]]()
    monkeypatch.setattr(events.sender, "send", told.append)
    callback = LiteLLMToolEvents(events)
    for session in ("a", "a", "b"):
        callback.log_success_event({}, answer(session, ("functions.bash:0", "bash")), None, None)
        callback.log_pre_api_call("m", results("functions.bash:0"), {})
    assert [event["session"] for event in told if event["event"] == "end"] == ["a", "a", "b"]


def test_without_litellm_the_error_names_it() -> None:
    with pytest.raises(ImportError, match="litellm"):
        tool_callback(ToolEvents("http://127.0.0.1:9"))
