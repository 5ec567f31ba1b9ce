"""Replicas that are down, die, come back empty, change, or tell nonsense about themselves."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import Front, emulated, fronted, restarted, until, words

from tao.core.commands import DispatchTurn, Interruption, InterruptSession, Refusal, RefuseTurn
from tao.core.events import CapacityChanged, ReplicaJoined, ReplicaLost
from tao.gateway.config import Health, SchedulerConfig
from tao.gateway.fleet import UNKNOWN_CAPACITY_TOKENS
from tao.gateway.probe import LATE
from tao.record.summary import summarise
from tao.replay import Replay, ReplayConfig
from tao.traces.model import TraceSession, TraceTool, TraceTurn

NOWHERE = "http://127.0.0.1:1"


async def ready(front: Front) -> tuple[int, dict[str, Any]]:
    answer = await front.http.get("/readyz")
    return answer.status_code, answer.json()


# --- down at the start ------------------------------------------------------------------------------------------------


async def test_it_starts_with_every_replica_down_and_says_so() -> None:
    async with fronted(NOWHERE) as front:
        code, told = await ready(front)
        assert (code, told["ready"], told["why"]) == (503, False, "no replica is up")
        assert "Connect call failed" in told["replicas"]["127.0.0.1:1"]
        assert (await front.http.get("/healthz")).status_code == 200
        models = await front.http.get("/v1/models")
        assert (models.status_code, models.headers["retry-after"]) == (503, "10")
        passed = await front.http.post("/v1/embeddings", json={})
        assert passed.status_code == 503
        assert "no replica is up" in passed.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/chat/completions", "server_error"), ("/v1/messages", "api_error")]
)
async def test_a_turn_waits_for_a_replica_up_to_the_bound(path: str, kind: str) -> None:
    bounds = SchedulerConfig(no_replica_seconds_max=0.2)
    async with fronted(NOWHERE, scheduler=bounds) as front:
        body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
        await until(
            lambda: front.gateway.driver.clock.now() > 0.2
        )  # down for long: the turn waits all the same
        asked_at = front.gateway.driver.clock.now()
        answer = await front.http.post(path, json=body)
        assert front.gateway.driver.clock.now() - asked_at >= 0.2
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert answer.json()["error"]["type"] == kind
        assert "no replica is up" in answer.json()["error"]["message"]
        (refused,) = front.commands(RefuseTurn)
        assert refused.cause is Refusal.NO_REPLICA


async def test_a_turn_that_waits_is_served_when_a_replica_comes_up() -> None:
    engine = FakeEngine(default=says("here"))
    await engine.start()
    await engine.die()
    async with fronted(engine.url) as front, AsyncExitStack() as stack:
        held = front.chatting(session="s")
        await until(lambda: front.held() == 1)
        assert (await front.http.get("/explain/s")).json()["why"] == "waits because no replica is up"
        await engine.start()
        stack.push_async_callback(engine.die)
        answer = await held
        assert answer.json()["choices"][0]["message"]["content"] == "here"
        assert (await ready(front))[0] == 200


async def test_a_healthy_replica_serves_while_another_one_is_down() -> None:
    async with fake_engine() as engine, fronted(NOWHERE, engine.url) as front:
        assert (await ready(front))[0] == 200
        answers = await asyncio.gather(*(front.chat(session=f"s{n}") for n in range(4)))
        assert {answer.status_code for answer in answers} == {200}


# --- down later -------------------------------------------------------------------------------------------------------


async def test_a_replica_that_is_ill_takes_no_admissions() -> None:
    async with fake_engine() as one, fake_engine() as two, fronted(one.url, two.url) as front:
        one.healthy = False
        await until(lambda: front.events(ReplicaLost))
        for number in range(3):
            answer = await front.chat(session=f"s{number}")
            assert answer.headers["x-tao-decision"].startswith(f"replica={two.url[7:]};")
        assert "answers 503" in (await ready(front))[1]["replicas"][one.url[7:]]
        one.healthy = True
        await until(lambda: len(front.events(ReplicaJoined)) == 3)


async def test_one_missed_look_is_not_the_end() -> None:
    health = Health(period_seconds=0.02, timeout_seconds=1.0, failures_max=10_000)
    async with fake_engine() as engine, fronted(engine.url, health=health) as front:
        engine.healthy = False
        member = next(iter(front.gateway.fleet))
        await until(lambda: member.failures >= 3)
        assert member.up
        assert (await front.chat(session="s")).status_code == 200


async def test_a_request_that_meets_a_dead_replica_is_looked_into_at_once() -> None:
    health = Health(period_seconds=3600.0, timeout_seconds=1.0, failures_max=2)
    async with fake_engine() as two, AsyncExitStack() as stack:
        one = FakeEngine()
        await one.start()
        front = await stack.enter_async_context(fronted(one.url, two.url, health=health))
        await one.die()
        answer = await front.chat(session="s")
        assert answer.status_code == 200
        await until(lambda: front.events(ReplicaLost))


async def test_a_killed_replica_comes_back_empty_and_is_used_again() -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(emulated())
        two = await stack.enter_async_context(emulated())
        front = await stack.enter_async_context(fronted(one.url, two.url, speed=20.0))
        for name in ("a", "b"):
            assert (await front.chat(words(500), name)).status_code == 200
        on_one = next(name for name in ("a", "b") if front.session(name).home == one.url[7:])  # type: ignore[union-attr]
        session = front.session(on_one)
        assert session is not None
        assert one.url[7:] in session.evidence
        await one.kill()
        await until(lambda: front.events(ReplicaLost))
        assert session.evidence == {}, "what it had cached is gone"
        (lost,) = front.commands(InterruptSession)
        assert (lost.session, lost.reason) == (session.id, Interruption.REPLICA_LOST)
        assert (
            (await front.chat(words(500), on_one))
            .headers["x-tao-decision"]
            .startswith(f"replica={two.url[7:]};")
        )

        again = await restarted(one)
        stack.push_async_callback(again.close)
        await until(lambda: len(front.events(ReplicaJoined)) == 3)
        answers = [await front.chat(words(500), f"new {n}") for n in range(4)]
        assert any(a.headers["x-tao-decision"].startswith(f"replica={one.url[7:]};") for a in answers)


async def test_a_restart_between_two_looks_is_seen_by_the_counters() -> None:
    behaviour = says("ok", counts=usage(500, 10))
    async with (
        fake_engine(default=behaviour, served_tokens=1000) as engine,
        fronted(engine.url) as front,
    ):
        await front.chat(words(500), "s")
        session = front.session("s")
        assert session is not None
        engine.served_tokens = 2000
        member = next(iter(front.gateway.fleet))
        await until(lambda: member.served.prompt == {"0": 2000.0})
        assert session.evidence
        engine.served_tokens = 0
        await until(lambda: front.events(ReplicaLost))
        await until(lambda: len(front.events(ReplicaJoined)) == 2)
        assert session.evidence == {}


async def test_a_counter_that_is_missing_for_a_look_is_no_restart() -> None:
    async with fake_engine(served_tokens=1000) as engine, fronted(engine.url) as front:
        await front.chat(words(500), "s")
        member = next(iter(front.gateway.fleet))
        whole = engine.metrics()
        for page in (whole.replace("} 1000.0", "} NaN"), whole.replace("vllm:prompt_tokens_total", "#")):
            engine.page = page
            await until(lambda: any("prompt_tokens" in told for told in member.sighting.problems))
            engine.page = whole
            await until(lambda: not member.sighting.problems)
        assert front.events(ReplicaLost) == []
        engine.page = whole.replace("} 1000.0", "} 10.0")
        await until(lambda: front.events(ReplicaLost))


@pytest.mark.parametrize("page", [b'{"data": [{"id": "\xff"}]}', b'{"data": ' + b"[" * 100_000])
async def test_a_models_page_that_cannot_be_read_tells_no_models(page: bytes) -> None:
    async with fake_engine(pages={"/v1/models": (200, page)}) as engine, fronted(engine.url) as front:
        assert (await front.chat("hello")).status_code == 200
        assert next(iter(front.gateway.fleet)).models is None


async def test_a_restart_is_seen_although_a_look_was_missed_in_between() -> None:
    async with fake_engine(served_tokens=1000) as engine:
        health = Health(period_seconds=0.02, timeout_seconds=1.0, failures_max=10_000)
        async with fronted(engine.url, health=health) as front:
            member = next(iter(front.gateway.fleet))
            engine.healthy = False
            await until(lambda: member.failures >= 1)
            engine.served_tokens = 10
            engine.healthy = True
            await until(lambda: front.events(ReplicaLost))


# --- in the middle of a replay ----------------------------------------------------------------------------------------


def agents(count: int, turns: int) -> list[TraceSession]:
    """Sessions that grow by 300 tokens a turn."""
    return [
        TraceSession(
            session_id=f"agent-{number}",
            turns=tuple(
                TraceTurn(
                    prompt_tokens=400 + 300 * turn,
                    output_tokens=40,
                    tool=TraceTool(name="bash", duration_seconds=2.0) if turn + 1 < turns else None,
                )
                for turn in range(turns)
            ),
        )
        for number in range(count)
    ]


async def test_a_replica_killed_in_the_middle_of_a_replay() -> None:
    """No request hangs: each succeeds, elsewhere if need be, or is told clearly. The replica comes back and is used."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(emulated(speed=50.0, kv_tokens=20_000))
        two = await stack.enter_async_context(emulated(speed=50.0, kv_tokens=20_000))
        front = await stack.enter_async_context(fronted(one.url, two.url, speed=50.0))
        run = Replay(ReplayConfig(front.url, concurrency=6, speed=50.0, retries_max=3), agents(12, 5))
        replaying = asyncio.get_running_loop().create_task(run.run())
        await until(lambda: len(run.measurements) >= 10)
        await until(lambda: one.service.model.stats().running)
        await one.kill()
        await until(lambda: front.events(ReplicaLost))
        back_at = len(front.log)
        again = await restarted(one)
        stack.push_async_callback(again.close)
        await asyncio.wait_for(replaying, 30)
        summary = summarise(run.measurements, workers=6)
        assert summary.turns == 60
        assert summary.turns_failed == 0, run.failures
        used = [
            c.replica for _, commands in front.log[back_at:] for c in commands if isinstance(c, DispatchTurn)
        ]
        assert one.url[7:] in used


async def test_a_replica_whose_health_page_alone_is_late_stays() -> None:
    """SGLang answers it behind a long prefill only."""
    health = Health(period_seconds=0.02, timeout_seconds=0.1, failures_max=1)
    async with fake_engine() as engine, fronted(engine.url, health=health) as front:
        engine.health_delay_seconds = 60.0
        (member,) = front.gateway.fleet
        await until(lambda: LATE in member.sighting.problems)
        (first,) = front.gateway.fleet.reconciliation
        await until(lambda: next(iter(front.gateway.fleet.reconciliation)).looked_at > first.looked_at + 0.3)
        assert not front.events(ReplicaLost)
        assert (await front.chat("hello", "s")).status_code == 200


# --- what a replica tells ---------------------------------------------------------------------------------------------


async def test_another_capacity_is_noticed() -> None:
    async with fake_engine(capacity_tokens=8192) as engine, fronted(engine.url) as front:
        engine.capacity_tokens = 4096
        await until(lambda: front.events(CapacityChanged))
        assert (await front.state())["replicas"][0]["capacity_tokens"] == 4096


async def test_scientific_notation_is_read() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        (told,) = (await front.state())["engines"]
        assert told["kv_usage"] == 4.2e-05
        assert told["problems"] == []


async def test_numbers_that_are_none_are_named() -> None:
    async with fake_engine() as engine:
        engine.page = engine.metrics().replace("4.2e-05", "NaN")
        async with fronted(engine.url) as front:
            (told,) = (await front.state())["engines"]
            assert told["kv_usage"] is None
            assert any("vllm:kv_cache_usage_perc is nan" in problem for problem in told["problems"])
            assert told["capacity_tokens"] == 1 << 20


@pytest.mark.parametrize("page", ["", "no metrics at all\n{}{}", "vllm:num_requests_running 1.0\n"])
async def test_without_a_capacity_it_runs_and_says_what_is_missing(page: str) -> None:
    async with fake_engine(page=page) as engine, fronted(engine.url) as front:
        (told,) = (await front.state())["engines"]
        assert told["capacity_tokens"] is None
        assert any("capacity" in problem for problem in told["problems"])
        assert (await front.chat(session="s")).status_code == 200
        assert (await front.state())["replicas"][0]["capacity_tokens"] == UNKNOWN_CAPACITY_TOKENS


async def test_the_configured_capacity_stands_in() -> None:
    async with fake_engine(page="") as engine, fronted(engine.url, capacity_tokens=12_345) as front:
        assert (await front.state())["replicas"][0]["capacity_tokens"] == 12_345


async def test_one_bad_page_does_not_make_a_replica_boundless() -> None:
    async with fake_engine(capacity_tokens=8192) as engine, fronted(engine.url) as front:
        engine.page = ""
        member = next(iter(front.gateway.fleet))
        await until(lambda: member.sighting.capacity_tokens is None)
        assert (await front.state())["replicas"][0]["capacity_tokens"] == 8192
        assert not front.events(CapacityChanged)


async def test_a_plain_openai_compatible_server_will_do() -> None:
    async with fake_engine(has_pages=False) as engine, fronted(engine.url) as front:
        (told,) = (await front.state())["engines"]
        assert told["up"]
        assert "/metrics answers 404" in told["problems"]
        assert (await front.chat(session="s")).status_code == 200
