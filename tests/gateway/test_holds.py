"""Turns that are held: who is, for how long, what the client sees of it, and when TAO says no."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.commands import DispatchTurn, Interruption, InterruptSession, Reason
from tao.gateway.config import KeepAlive, SchedulerConfig

SIGNS = KeepAlive(grace_seconds=0.03, period_seconds=0.03)
BIG = words(2000)
ANTHROPIC = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": BIG}]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": BIG}]}
RESPONSES = {"model": "m", "input": BIG}


@dataclass(frozen=True, slots=True)
class Full:
    """A gateway whose only replica is full: session `first` runs there until `gate` is set."""

    front: Front
    engine: FakeEngine
    gate: asyncio.Event
    first: asyncio.Task[httpx.Response]

    async def make_room(self) -> None:
        """`first` finishes its turn and is released."""
        self.gate.set()
        assert (await self.first).status_code == 200
        release(self.front, "first")


@asynccontextmanager
async def full(**settings: Any) -> AsyncIterator[Full]:
    gate = asyncio.Event()
    async with fake_engine(capacity_tokens=4096) as engine, fronted(engine.url, **settings) as front:
        engine.then(says("a b", gate=gate, counts=usage(2000, 10)))
        first = front.chatting(BIG, "first", stream=True)
        await until(lambda: engine.now == 1)
        yield Full(front, engine, gate, first)
        gate.set()
        await asyncio.gather(first, return_exceptions=True)


def release(front: Front, name: str) -> None:
    session = front.session(name)
    assert session is not None
    front.end(session)


# --- what a held client sees ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "sign"),
    [
        ("/v1/chat/completions", CHAT, ": keep-alive"),
        ("/v1/completions", {"model": "m", "prompt": BIG}, ": keep-alive"),
        ("/v1/responses", RESPONSES, ": keep-alive"),
        ("/v1/messages", ANTHROPIC, "event: ping"),
    ],
)
async def test_a_held_stream_is_kept_alive_in_its_dialect(path: str, body: dict[str, Any], sign: str) -> None:
    async with full(keep_alive=SIGNS) as scene:
        front = scene.front
        async with front.http.stream("POST", path, json={**body, "stream": True}) as held:
            assert held.status_code == 200
            assert held.headers["content-type"] == "text/event-stream"
            assert held.headers["x-tao-decision"] == "held"
            lines = held.aiter_lines()
            signs = 0
            while signs < 3:  # not only once
                signs += await anext(lines) == sign
            await scene.make_room()
            rest = [line async for line in lines]
        assert any(line.startswith("data: ") for line in rest)
        [decision] = [line for line in rest if line.startswith(": x-tao-decision: ")]
        assert decision.endswith("reason=planned")
        [told] = [line for line in rest if line.startswith(": x-tao-hold-seconds: ")]
        assert float(told.rpartition(" ")[2]) > 0
        assert front.held() == 0


async def test_before_the_grace_nothing_is_sent_and_the_decision_is_told() -> None:
    async with full() as scene:
        front = scene.front
        held = front.chatting(BIG, "second", stream=True)
        await until(lambda: front.held() == 1)
        await scene.make_room()
        answer = await held
        assert answer.headers["x-tao-decision"].endswith("reason=planned")
        assert float(answer.headers["x-tao-hold-seconds"]) > 0
        assert "keep-alive" not in answer.text


async def test_a_held_request_without_stream_gets_its_whole_answer() -> None:
    async with full(keep_alive=SIGNS) as scene:
        front = scene.front
        held = front.chatting(BIG, "second")
        await until(lambda: front.held() == 1)
        await scene.make_room()
        answer = await held
        assert answer.json()["choices"][0]["message"]["content"] == "ok"
        assert answer.headers["x-tao-decision"].endswith("reason=planned")


async def test_explain_says_why_it_waits() -> None:
    async with full() as scene:
        front = scene.front
        engine = scene.engine
        held = front.chatting(BIG, "second")
        await until(lambda: front.held() == 1)
        told = (await front.http.get("/explain/second")).json()
        assert told["phase"] == "waiting"
        assert told["why"].startswith("waits: needs 2")
        assert "placed by force after 300 s" in told["why"]
        assert list(told["values"]["free_tokens"]) == [engine.url[7:]]
        assert (await front.state())["held_turns"] == 1
        release(front, "second")
        await held


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_at_the_bound_a_held_turn_is_placed_by_force() -> None:
    async with full(scheduler=SchedulerConfig(hold_seconds_max=0.1)) as scene:
        front = scene.front
        engine = scene.engine
        answer = await front.chat(BIG, "second")
        assert answer.headers["x-tao-decision"] == f"replica={engine.url[7:]}; reason=forced"
        assert 0.1 <= float(answer.headers["x-tao-hold-seconds"]) < 2.0


async def test_what_no_replica_could_hold_goes_to_the_engine_at_once() -> None:
    async with full() as scene:
        front = scene.front
        answer = await front.chat(words(5000), "second")
        assert answer.headers["x-tao-decision"].endswith("reason=oversize")
        assert answer.headers["x-tao-hold-seconds"] == "0.000"


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", CHAT, 429, "rate_limit_error"),
        ("/v1/responses", RESPONSES, 429, "rate_limit_error"),
        ("/v1/messages", ANTHROPIC, 529, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_only_a_full_pool_refuses(
    path: str, body: dict[str, Any], status: int, kind: str, stream: bool
) -> None:
    async with full(scheduler=SchedulerConfig(held_turns_max=1)) as scene:
        front = scene.front
        held = front.chatting(BIG, "second")
        await until(lambda: front.held() == 1)
        refused = await front.http.post(path, json={**body, "stream": stream})
        assert refused.status_code == status
        assert refused.json()["error"]["type"] == kind
        assert "full" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        metrics = (await front.http.get("/metrics")).text
        assert 'tao_refusals_total{cause="pool-full"} 1.0' in metrics
        release(front, "second")
        assert (await held).status_code == 503


async def test_a_session_released_while_held_is_told_so() -> None:
    async with full() as scene:
        front = scene.front
        held = front.chatting(BIG, "second")
        await until(lambda: front.held() == 1)
        released = await front.http.post("/programs/release", json={"program_id": "second"})
        assert released.json() == {"released": True, "session_id": "public/second"}
        answer = await held
        assert answer.status_code == 503
        assert "released" in answer.json()["error"]["message"]


# --- who holds others back ------------------------------------------------------------------------------------------


async def test_a_client_that_vanishes_in_the_middle_of_a_turn_holds_nobody_back() -> None:
    async with full() as scene:
        second = scene.front.chatting(BIG, "second")
        await until(lambda: scene.front.held() == 1)
        scene.first.cancel()
        answer = await second
        assert answer.headers["x-tao-decision"].endswith("reason=planned")
        assert scene.front.session("first") is not None, "it may come back, but it holds nothing"


@pytest.mark.parametrize("policy", ["tao", "tao-paper"])
async def test_a_session_whose_tool_never_returns_holds_nobody_back_for_long(policy: str) -> None:
    bounds = SchedulerConfig(hold_seconds_max=1e6, idle_seconds_max=60.0)
    settings: dict[str, Any] = {"policy": policy, "speed": 100.0, "scheduler": bounds}
    async with fake_engine(capacity_tokens=4096) as engine, fronted(engine.url, **settings) as front:
        engine.then(says("a", tools=["bash"], counts=usage(2000, 10)))
        await front.chat(BIG, "vanished")
        answer = await front.chat(BIG, "second")
        assert answer.headers["x-tao-decision"].endswith("reason=planned")
        assert float(answer.headers["x-tao-hold-seconds"]) < 65.0
        if (
            policy == "tao"
        ):  # the lease ends when its return is overdue beyond belief, well before the idle bound
            (lapsed,) = front.commands(InterruptSession)
            assert lapsed.reason is Interruption.LAPSED


async def test_an_anonymous_request_holds_nobody_back() -> None:
    async with fake_engine(capacity_tokens=4096) as engine, fronted(engine.url) as front:
        headers = {"content-encoding": "x-odd", "content-type": "application/json"}
        sent = await front.http.post("/v1/chat/completions", content=b"x" * 9000, headers=headers)
        assert sent.status_code == 200
        assert front.reserved_tokens(engine.url) == 0
        answer = await front.chat(BIG, "second")
        assert answer.headers["x-tao-hold-seconds"] == "0.000"


# --- nobody is held without need ------------------------------------------------------------------------------------


async def test_unsaturated_nobody_is_ever_held() -> None:
    """Two replicas at no more than half of their capacity: every turn goes out in the moment in which it arrives."""
    sessions, turns = 12, 4
    async with (
        emulated(kv_tokens=20_000) as one,
        emulated(kv_tokens=20_000) as two,
        fronted(one.url, two.url, speed=20.0) as front,
    ):
        answers = await asyncio.gather(*(converse(front, f"s{n}", turns) for n in range(sessions)))
        most = max(front.reserved_tokens(url) for url in (one.url, two.url))
    assert most <= 10_000
    headers = [answer.headers for conversation in answers for answer in conversation]
    assert len(headers) == sessions * turns
    assert {header["x-tao-hold-seconds"] for header in headers} == {"0.000"}
    reasons = {command.reason for command in front.commands(DispatchTurn)}
    assert reasons <= {Reason.ROOM, Reason.HOME}


async def converse(front: Front, session: str, turns: int) -> list[httpx.Response]:
    """Turns that extend one another, ignoring what the model said."""
    messages: list[dict[str, Any]] = []
    answers = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{session} {turn} " + words(200)})
        answer = await front.chat(session=session, messages=messages)
        assert answer.status_code == 200
        messages.append(answer.json()["choices"][0]["message"])
        answers.append(answer)
    return answers
