"""`POST /v1/tao/tools` against a running gateway: what each event does, what repeats, what contradicts, what is refused."""

import asyncio
from typing import Any

import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import fronted, until

from tao.core.events import ToolBegan, ToolCall, ToolExpected, ToolFinished, ToolsMeasured
from tests.gateway_tools.tools_kit import acting, is_over, outcome, phase, report, turn

KEY = {"authorization": "Bearer key-1"}


# --- one tool -----------------------------------------------------------------------------------------------------------


async def test_the_end_of_a_tool_is_observed_before_the_next_turn() -> None:
    async with acting("bash") as (front, _):
        started = await report(front, "start", tool="bash")
        assert started.json() == {
            "session_id": "public/s",
            "call_id": "c1",
            "outcome": "applied",
            "tools_running": ["bash"],
            "session_over": False,
        }
        assert not is_over(front)
        ended = await report(front, "end", duration_seconds=0.5)
        assert (ended.json()["tools_running"], ended.json()["session_over"]) == ([], True)
        assert is_over(front)
        assert front.events(ToolBegan) == [], "the response had named it"
        told = (await front.http.get("/explain/s")).json()
        assert told["tool_evidence"][0]["source"] == "completion observed"
        assert told["values"]["ready"] == 1


async def test_an_end_is_enough_where_the_start_was_lost() -> None:
    async with acting("bash") as (front, _):
        assert await outcome(front, "end", tool="bash") == "applied"
        assert is_over(front)


async def test_a_start_that_was_overtaken_by_its_end_changes_nothing() -> None:
    async with acting("bash") as (front, _):
        await report(front, "end", tool="bash")
        assert await outcome(front, "start", tool="bash") == "repeated"
        assert is_over(front)


async def test_every_event_may_be_sent_again() -> None:
    async with acting("bash") as (front, _):
        for _time in range(3):
            await report(front, "start", tool="bash", expected_seconds=5)
        assert len(front.events(ToolExpected)) == 1
        assert await outcome(front, "end", duration_seconds=1) == "applied"
        assert await outcome(front, "end", duration_seconds=1) == "repeated"
        assert await outcome(front, "end") == "repeated"
        assert await outcome(front, "progress", fraction_done=0.9) == "repeated", "overtaken by the end"
        assert len(front.events(ToolFinished)) == 1


async def test_promises_become_expected_returns() -> None:
    async with acting("bash") as (front, _):
        await report(front, "start", tool="bash", expected_seconds=60)
        first = phase(front)
        assert first.expected_at is not None
        assert first.told_at is not None
        assert first.expected_at - first.told_at == pytest.approx(60, abs=0.1)
        await report(front, "deadline", remaining_seconds=7)
        await report(front, "progress", remaining_seconds=6)
        told = (await front.http.get("/explain/s")).json()
        promise = told["tool_evidence"][0]
        assert promise["source"] == "promised by the tool interface"
        assert 5 < promise["returns_in_seconds"] <= 6
        assert told["values"]["return"]["source"] == "told by the tool interface"
        (call,) = told["reported_calls"]
        assert (call["tool"], call["state"]) == ("bash", "running")
        assert 5 < call["returns_in_seconds"] <= 6
        await report(front, "end")
        told = (await front.http.get("/explain/s")).json()
        assert told["why"].startswith(
            "its tool has ended, its next turn is not here yet; it keeps its admission"
        )
        (call,) = told["reported_calls"]
        assert (call["state"], call["returns_in_seconds"]) == ("ended", None)


async def test_a_fraction_done_is_a_promise_by_the_time_it_took() -> None:
    async with acting("bash", speed=100.0) as (front, _):
        await report(front, "start", tool="bash")
        await report(front, "progress", fraction_done=0)
        assert front.events(ToolExpected) == [], "nothing is known of it yet"
        await asyncio.to_thread(until_later, front)
        await report(front, "progress", fraction_done=0.25)
        (expected,) = front.events(ToolExpected)
        elapsed = expected.at - phase(front).since
        assert expected.return_at - expected.at == pytest.approx(3 * elapsed, rel=0.3)


async def test_next_to_nothing_done_is_no_promise_without_an_end() -> None:
    async with acting("bash") as (front, _):
        await report(front, "start", tool="bash")
        assert await outcome(front, "progress", fraction_done=5e-324) == "applied"
        (expected,) = front.events(ToolExpected)
        assert expected.return_at - expected.at == pytest.approx(1e7)


def until_later(front: Any) -> None:
    """Wait until a model second has passed."""
    begun = front.gateway.driver.clock.now()
    while front.gateway.driver.clock.now() < begun + 2:
        pass


async def test_spans_are_wall_seconds_also_where_model_time_runs_faster() -> None:
    async with acting("bash", speed=100.0) as (front, _):
        await report(front, "start", tool="bash", expected_seconds=2)
        (expected,) = front.events(ToolExpected)
        assert expected.return_at - expected.at == pytest.approx(200, rel=0.01)


# --- several tools ------------------------------------------------------------------------------------------------------


async def test_parallel_tools_are_over_with_the_last_one() -> None:
    async with acting("bash", "read") as (front, _):
        await report(front, "start", "a", tool="bash")
        await report(front, "start", "b", tool="read")
        await report(front, "end", "b", duration_seconds=0.25)
        assert not is_over(front)
        await report(front, "end", "a", duration_seconds=4)
        assert is_over(front)
        assert [event.durations for event in front.events(ToolsMeasured)] == [
            (("read", 0.25),),
            (("bash", 4.0),),
        ]


async def test_a_tool_that_was_asked_for_and_not_reported_may_still_run() -> None:
    async with acting("bash", "read") as (front, _):
        await report(front, "start", "a", tool="bash", expected_seconds=3)
        assert front.events(ToolExpected) == [], "the other one may take longer"
        await report(front, "end", "a")
        assert not is_over(front)
        await report(front, "start", "b", tool="read")
        await report(front, "end", "b")
        assert is_over(front)


async def test_the_promise_of_parallel_tools_is_the_latest_of_those_that_run() -> None:
    async with acting("bash", "read") as (front, _):
        await report(front, "start", "a", tool="bash", expected_seconds=3)
        await report(front, "start", "b", tool="read", expected_seconds=50)
        (expected,) = front.events(ToolExpected)
        assert expected.return_at - expected.at == pytest.approx(50, abs=0.1)


async def test_a_session_whose_response_named_no_tool() -> None:
    """Agents that read their commands out of plain text, or that decorate functions of their own."""
    async with acting() as (front, _):
        await report(front, "start", "a", tool="shell", command="cd /x && sleep 3 && make test")
        await report(front, "start", "b", tool="search")
        assert phase(front).tools == (ToolCall("shell", "sleep", 3.0), ToolCall("search"))
        await report(front, "end", "a")
        assert not is_over(front)
        await report(front, "end", "b")
        assert is_over(front)
        first_since = phase(front).since
        await report(front, "start", "c", tool="shell")
        assert phase(front).tools == (ToolCall("shell"),)
        assert phase(front).since > first_since, "a tool phase of its own"
        await report(front, "end", "c")
        assert is_over(front)


async def test_what_runs_inside_a_tool_is_not_what_the_session_waits_for() -> None:
    """A sub-agent's tools reported under its parent's id."""
    async with acting("Task") as (front, _):
        await report(front, "start", "task", tool="Task")
        await report(front, "start", "inner", tool="Bash")
        await report(front, "end", "inner")
        assert phase(front).tools == (ToolCall("Task"),)
        assert not is_over(front)
        await report(front, "end", "task")
        assert is_over(front)


# --- before and after the tool phase --------------------------------------------------------------------------------------


async def test_a_tool_that_starts_before_its_turn_has_quite_ended() -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("a b", tools=["bash"], gate=gate, counts=usage(300, 20)))
        running = front.chatting(session="s", stream=True)
        await until(lambda: engine.now == 1)
        assert await outcome(front, "start", tool="bash", expected_seconds=9) == "noted"
        gate.set()
        await running
        await until(lambda: front.events(ToolExpected))
        assert await outcome(front, "end") == "applied"
        assert is_over(front)


async def test_no_early_report_cuts_the_answer_of_its_turn() -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("a b", tools=["bash"], gate=gate, counts=usage(300, 20)))
        running = front.chatting(session="s", stream=True)
        await until(lambda: engine.now == 1)
        await report(front, "start", tool="bash")
        assert await outcome(front, "progress", fraction_done=5e-324) == "noted"
        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n")
        assert len(front.events(ToolExpected)) == 1


async def test_an_end_after_the_next_turn_has_arrived_is_late() -> None:
    gate = asyncio.Event()
    async with acting("bash") as (front, engine):
        await report(front, "start", tool="bash")
        engine.then(says("a b", tools=["bash"], gate=gate, counts=usage(400, 20)))
        running = front.chatting(session="s")
        await until(lambda: engine.now == 1)
        assert await outcome(front, "end") == "late"
        assert await outcome(front, "end", "never-heard-of", tool="bash") == "late"
        gate.set()
        await running
        assert not is_over(front), "the new tool has not ended"
        assert await outcome(front, "start", tool="bash") == "applied", (
            "the id may be used again in a new phase"
        )
        assert await outcome(front, "end") == "applied"
        assert is_over(front)


async def test_calls_of_a_closed_session_are_forgotten() -> None:
    async with acting("bash") as (front, _):
        await report(front, "start", tool="bash")
        assert len(front.gateway._tools._book) == 1
        await front.http.post("/close_session", json={"session_id": "s"})
        assert len(front.gateway._tools._book) == 0
        assert (await report(front, "end")).status_code == 404


# --- whose session ------------------------------------------------------------------------------------------------------


async def test_sessions_are_scoped_by_api_key() -> None:
    async with acting("bash", headers=KEY) as (front, _):
        for headers in (None, {"authorization": "Bearer key-2"}, {"x-api-key": "key-1"}):
            refused = await report(front, "start", tool="bash", headers=headers)
            assert refused.status_code == 404
            assert refused.json()["error"]["type"] == "unknown_session"
            assert "no open session of this API key is named 's'" in refused.json()["error"]["message"]
        assert (await report(front, "start", tool="bash", headers=KEY)).status_code == 200


async def test_the_full_id_that_answers_carry_is_accepted_from_its_owner() -> None:
    """A client that sent no id learns it from `x-tao-session`."""
    async with fake_engine(default=says("ok", tools=["bash"])) as engine, fronted(engine.url) as front:
        answer = await front.chat(headers=KEY)
        session = answer.headers["x-tao-session"]
        assert "/~" in session
        assert (await report(front, "end", session=session, tool="bash", headers=KEY)).status_code == 200
        assert (await report(front, "end", session=session, tool="bash")).status_code == 404


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the event cannot be read: Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"session":"s","event":"start"}', "missing required field `call_id`"),
        (b'{"session":"s","event":"begin","call_id":"c"}', "Invalid enum value 'begin'"),
        (b'{"session":"s","event":"start","call_id":"c"}', "needs 'tool'"),
        (b'{"session":"","event":"start","call_id":"c","tool":"t"}', "length >= 1"),
        (b'{"session":"s","event":"start","call_id":"c","tool":"t","secs":1}', "unknown field `secs`"),
        (
            b'{"session":"s","event":"start","call_id":"c","tool":"t","duration_seconds":1}',
            "'duration_seconds' means nothing in a 'start' event, which has: command, expected_seconds, tool",
        ),
        (b'{"session":"s","event":"end","call_id":"c","tool":"t","duration_seconds":-1}', ">= 0"),
        (b'{"session":"s","event":"end","call_id":"c","tool":"t","duration_seconds":1e400}', "out of range"),
        (b'{"session":"s","event":"deadline","call_id":"c","tool":"t"}', "needs 'remaining_seconds'"),
        (b'{"session":"s","event":"progress","call_id":"c","tool":"t"}', "either"),
        (b'{"session":"s","event":"progress","call_id":"c","fraction_done":2}', "<= 1"),
        (b"[" * 100_000, "more than 65536 bytes"),
        (b"[" * 60_000, "the event cannot be read"),
        (b'{"session":"\xff"}', "the event cannot be read"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_reason(body: bytes, message: str) -> None:
    async with acting("bash") as (front, _):
        refused = await front.http.post("/v1/tao/tools", content=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "malformed_event"
        assert message in refused.json()["error"]["message"]
        assert not is_over(front)


async def test_contradictions_are_refused() -> None:
    async with acting("bash", "read") as (front, _):
        await report(front, "start", tool="bash")
        other = await report(front, "start", tool="read")
        assert (other.status_code, other.json()["error"]["type"]) == (409, "conflicting_event")
        assert "each call needs its own id" in other.json()["error"]["message"]
        await report(front, "end", duration_seconds=1)
        again = await report(front, "end", duration_seconds=2)
        assert again.status_code == 409


async def test_an_unknown_call_needs_its_tools_name() -> None:
    async with acting("bash") as (front, _):
        refused = await report(front, "end", "c9")
        assert (refused.status_code, refused.json()["error"]["type"]) == (404, "unknown_call")
        assert await outcome(front, "end", "c9", tool="bash") == "applied"


async def test_open_calls_of_a_session_are_bounded_and_ended_ones_make_room() -> None:
    async with acting("bash") as (front, _):
        for number in range(64):
            assert (await report(front, "start", f"c{number}", tool="bash")).status_code == 200
        refused = await report(front, "start", "c64", tool="bash")
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "too_many_calls")
        await report(front, "end", "c7")
        assert (await report(front, "start", "c64", tool="bash")).status_code == 200
        assert len(front.gateway._tools._book) == 64


async def test_reports_are_counted() -> None:
    async with acting("bash") as (front, _):
        await report(front, "start", tool="bash")
        await report(front, "start", session="nobody", tool="bash")
        await front.http.post("/v1/tao/tools", content=b"{")
        page = (await front.http.get("/metrics")).text
        for labels in (
            'event="start",outcome="applied"',
            'event="start",outcome="unknown_session"',
            'event="unread",outcome="malformed_event"',
        ):
            assert f"tao_tool_reports_total{{{labels}}} 1.0" in page


# --- the durations header -------------------------------------------------------------------------------------------------


async def test_measured_durations_of_parallel_tools_are_learned_of() -> None:
    async with acting("Bash", "Read", speed=10.0) as (front, engine):
        durations = {"x-claude-code-prev-tool-durations": "Bash=4000;Read=20"}
        await turn(front, engine, "Bash", headers=durations)
        (measured,) = front.events(ToolsMeasured)
        assert measured.durations == (("Bash", 40.0), ("Read", 0.2)), "in model seconds"
        await turn(front, engine, headers=durations)
        assert len(front.events(ToolsMeasured)) == 1, "one tool alone is told by its phase"


async def test_durations_that_were_reported_one_by_one_are_not_learned_of_twice() -> None:
    async with acting("Bash", "Read") as (front, engine):
        await report(front, "end", "a", tool="Bash", duration_seconds=4)
        await turn(front, engine, headers={"x-claude-code-prev-tool-durations": "Bash=4000;Read=20"})
        assert [event.durations for event in front.events(ToolsMeasured)] == [(("Bash", 4.0),)]
