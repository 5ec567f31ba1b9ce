"""A recorded gateway run, replayed through a fresh core, gives the same commands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_engine import drops, fake_engine, says, status, usage
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.commands import ComputePlan, DispatchTurn, InterruptSession, RefuseTurn
from tao.core.events import Event, ReplicaLost
from tao.gateway.config import SchedulerConfig
from tao.policies import make_policy
from tao.record.conformance import replay_log
from tao.record.log import LogWriter, read_log

BOUNDS = SchedulerConfig(held_turns_max=8, hold_seconds_max=60.0)


async def agent(front: Front, name: str, turns: int) -> None:
    """One session whose context grows, with tools that take a moment."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{name} {turn} " + words(400)})
        answer = await front.chat(session=name, messages=messages, stream=turn % 2 == 0, max_tokens=32)
        assert answer.status_code in {200, 429}
        messages.append({"role": "assistant", "content": f"{name} answers {turn} " + words(30)})


@pytest.mark.parametrize("policy", ["tao", "tao-paper", "round-robin", "thunderagent"])
async def test_a_run_under_pressure(tmp_path: Path, policy: str) -> None:
    """Holds, joint decisions, interrupts, clients that leave, replicas that fail: all of it comes out the same."""
    path = tmp_path / "run.log"
    with LogWriter(path, policy, BOUNDS.settings()) as log:
        async with (
            emulated(kv_tokens=4800) as one,
            emulated(kv_tokens=4800) as two,
            fronted(
                one.url, two.url, policy=policy, speed=20.0, scheduler=BOUNDS, observers=(log.observe,)
            ) as front,
        ):
            agents = [asyncio.ensure_future(agent(front, f"s{n}", 4)) for n in range(6)]
            leaver = front.chatting(words(300), "leaver", stream=True)
            await until(lambda: len(front.log) > 40)
            leaver.cancel()
            await asyncio.gather(*agents)
            await front.http.post("/close_session", json={"session_id": "s0"})
        entries = list(front.log)
    recorded = read_log(path)
    assert recorded.policy == policy
    assert [(entry.event, entry.commands) for entry in recorded] == entries
    assert replay_log(recorded, make_policy(recorded.policy), recorded.settings) == []
    commands = [command for _, commands in entries for command in commands]
    assert len([command for command in commands if isinstance(command, DispatchTurn)]) >= 24
    if policy == "tao":
        assert any(isinstance(command, ComputePlan) for command in commands), "there was nothing to decide"
        assert any(isinstance(command, InterruptSession) for command in commands), "nobody was interrupted"


async def test_a_run_full_of_failures(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with LogWriter(path, "tao", SchedulerConfig(held_turns_max=1).settings()) as log:
        async with (
            fake_engine(capacity_tokens=16_384, default=says("a b", counts=usage(2000, 10))) as one,
            fake_engine(capacity_tokens=16_384, default=drops()) as two,
            fronted(
                one.url,
                two.url,
                observers=(log.observe,),
                scheduler=SchedulerConfig(held_turns_max=1),
            ) as front,
        ):
            one.then(status(500), drops(), says("ok", counts={}))
            for number in range(6):
                await front.chat(words(1000), f"s{number % 3}")
            await two.die()
            await until(lambda: front.events(ReplicaLost))
            waiting = [front.chatting(words(12_000), f"w{number}") for number in range(3)]
            await until(lambda: front.commands(RefuseTurn))
            for task in waiting:
                task.cancel()
            await until(lambda: not front.turns())
            await front.gateway.drain()
            assert (await front.chat()).status_code == 503
            await two.start()
    assert replay_log(read_log(path), make_policy("tao"), SchedulerConfig(held_turns_max=1).settings()) == []


async def test_an_observer_that_fails_costs_no_turn(logs: list[dict[str, Any]]) -> None:
    def full_disk(event: Event, commands: Any) -> None:
        raise OSError("no space left on device")

    async with fake_engine() as engine, fronted(engine.url, observers=(full_disk,)) as front:
        assert (await front.chat(session="s")).status_code == 200
        told = [entry for entry in logs if entry["log_level"] == "error"]
        assert [entry["event"] for entry in told] == ["an observer failed; it is told nothing any more"]
