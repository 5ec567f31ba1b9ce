"""The decorator and the context manager of `tao.client` against a running gateway, and against one that is not there."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from gateway_kit import until

from tao.client import Sender, ToolEvents
from tao.core.events import ToolBegan, ToolCall, ToolExpected, ToolFinished
from tests.gateway_tools.tools_kit import acting, is_over, phase

KEY = "key-1"
BEARER = {"authorization": f"Bearer {KEY}"}
COST_SECONDS_MAX = 0.05


@contextmanager
def reporting(url: str, **settings: Any) -> Iterator[ToolEvents]:
    events = ToolEvents(url, **settings)
    try:
        yield events
    finally:
        events.close()


@contextmanager
def silent_server() -> Iterator[str]:
    """Something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def nowhere() -> str:
    """The address of a server that is down."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


# --- a running gateway ----------------------------------------------------------------------------------------------------


async def test_a_decorated_function() -> None:
    async with acting("search", headers=BEARER) as (front, _):
        with reporting(front.url, api_key=KEY) as events:
            session = events.session("s")

            @session.tool
            def search(query: str, *, limit: int = 3) -> str:
                """Finds."""
                return f"{query} {limit}"

            assert search.__name__ == "search"
            assert search.__doc__ == "Finds."
            assert await asyncio.to_thread(search, "x", limit=5) == "x 5"
            await until(lambda: is_over(front))
            assert events.sender.dropped == 0
            assert front.events(ToolBegan) == [], "the response had named it"


async def test_a_decorated_coroutine_function() -> None:
    gate = asyncio.Event()
    async with acting("bash", headers=BEARER) as (front, _):
        with reporting(f"{front.url}/v1", headers=BEARER) as events:

            @events.session(lambda: "s").tool(name="bash", expected_seconds=30)
            async def run(command: str) -> str:
                await gate.wait()
                return command

            task = asyncio.ensure_future(run("ls"))
            await until(lambda: front.events(ToolExpected))
            assert not is_over(front)
            gate.set()
            assert await task == "ls"
            await until(lambda: is_over(front))


async def test_a_context_manager_that_tells_how_far_it_is() -> None:
    async with acting() as (front, _):
        with reporting(front.url) as events:
            async with events.session("s").running("build", command="make -j4", call_id="c1") as call:
                await until(lambda: phase(front).tools == (ToolCall("build", "make"),))
                call.deadline(20)
                call.progress(0.5)
                await until(lambda: len(front.events(ToolExpected)) == 2)
                assert not is_over(front)
            await until(lambda: is_over(front))


async def test_a_tool_that_raises_has_ended_and_its_error_is_its_own() -> None:
    async with acting("bash") as (front, _):
        with reporting(front.url) as events:
            with pytest.raises(ZeroDivisionError), events.session("s").running("bash"):
                raise ZeroDivisionError
            await until(lambda: front.events(ToolFinished))


async def test_a_cancelled_coroutine_has_ended() -> None:
    async with acting("bash") as (front, _):
        with reporting(front.url) as events:

            @events.session("s").tool(name="bash")
            async def forever() -> None:
                await asyncio.Event().wait()

            task = asyncio.ensure_future(forever())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: is_over(front))


async def test_parallel_threads() -> None:
    async with acting("a", "b", "c") as (front, _):
        with reporting(front.url) as events:
            barrier = threading.Barrier(3)

            def work(name: str) -> None:
                with events.session("s").running(name):
                    barrier.wait(5)

            await asyncio.gather(*(asyncio.to_thread(work, name) for name in "abc"))
            await until(lambda: is_over(front))


async def test_a_session_that_there_is_not_is_not_reported() -> None:
    async with acting("bash") as (front, _):
        with reporting(front.url) as events:
            for session in (lambda: None, lambda: "", failing):
                with events.session(session).running("bash"):
                    pass
            events.flush()
            assert "tao_tool_reports_total{" not in (await front.http.get("/metrics")).text
            assert events.sender.dropped == 2, "the failing one"


def failing() -> str:
    raise LookupError("no session is being served")


async def test_events_after_close_are_sent_by_another_thread() -> None:
    async with acting("bash") as (front, _):
        with reporting(front.url) as events:
            await asyncio.to_thread(events.close)
            with events.session("s").running("bash"):
                pass
            await until(lambda: is_over(front))


# --- a gateway that is not there ------------------------------------------------------------------------------------------


def cost_seconds(call: Callable[[], object], times: int) -> float:
    """What the slowest call took, the one that starts the thread included."""
    slowest = 0.0
    for _time in range(times):
        started = time.perf_counter()
        call()
        slowest = max(slowest, time.perf_counter() - started)
    return slowest


@pytest.mark.parametrize("gateway", ["down", "silent"])
def test_a_gateway_that_is_not_there_costs_a_tool_next_to_nothing(gateway: str) -> None:
    with silent_server() as silent, reporting(nowhere() if gateway == "down" else silent) as events:
        tool = events.session("s").tool(lambda: "done")
        assert tool() == "done"
        assert cost_seconds(tool, 50) < COST_SECONDS_MAX


def test_after_a_failure_nothing_is_tried_for_a_while() -> None:
    with reporting(nowhere()) as events:
        with events.session("s").running("bash"):
            pass
        assert events.flush(5)
        assert events.sender.dropped == 2
        with events.session("s").running("bash"):
            pass
        assert events.flush(5)
        assert events.sender.dropped == 4


def test_the_queue_is_bounded() -> None:
    with silent_server() as url:
        sender = Sender(url, {}, timeout_seconds=30)
        for _number in range(3000):
            sender.send({"event": "start"})
        assert len(sender._queue) <= 1024
        assert sender.dropped >= 3000 - 1024 - 1
        assert not sender.flush(0.01)


def test_events_that_waited_too_long_are_no_news() -> None:
    with reporting("http://127.0.0.1:9") as events:
        events.sender._queue.append((time.monotonic() - 60, {"event": "end"}))
        with events.session("s").running("bash"):
            pass
        assert events.flush(5)
        assert events.sender.dropped == 3


@pytest.mark.parametrize("wrong", [float("nan"), -1, float("inf"), "soon", None])
def test_nonsense_in_a_tool_call_is_left_out(wrong: Any) -> None:
    sent: list[Any] = []
    with reporting("http://127.0.0.1:9") as events:
        events.sender.send = sent.append  # type: ignore[method-assign,assignment]
        with events.session("s").running("bash", expected_seconds=wrong, command=wrong) as call:
            call.progress(wrong)
            call.deadline(wrong)
    assert [event["event"] for event in sent] == ["start", "end"]
    assert "expected_seconds" not in sent[0]


@pytest.mark.parametrize("url", ["", "127.0.0.1:8100", "ftp://x", "http://"])
def test_what_is_no_url_is_refused_when_it_is_set_up(url: str) -> None:
    with pytest.raises(ValueError, match=r"is no http\(s\) URL"):
        ToolEvents(url)


def test_a_session_without_a_name_is_refused_when_it_is_set_up() -> None:
    with reporting("http://127.0.0.1:9") as events, pytest.raises(ValueError, match="session's id is empty"):
        events.session("")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_queue_and_a_thread_of_its_own() -> None:
    with reporting("http://127.0.0.1:9") as events:
        with events.session("s").running("bash"):
            pass
        events.flush(5)
        sender = events.sender
        sender._pid = -1  # as a child process finds it
        before = sender._thread
        sender.send({"event": "start"})
        assert sender._thread is not before
        assert events.flush(5)
