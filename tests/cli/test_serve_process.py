"""`tao serve` as a process: it drains on a signal, leaves nothing running, and lives through a kill -9 of a replica."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import chat_request, plain_http, until, words
from tao_process import TaoProcess, serve_arguments, tao

from tao.policies import make_policy
from tao.record.conformance import replay_log
from tao.record.log import read_log
from tao.record.summary import summarise
from tao.replay import Replay, ReplayConfig, replay
from tao.traces import read_trace
from tao.traces.model import TraceSession, TraceTool, TraceTurn

pytestmark = pytest.mark.slow

CONFIG = """
[keep_alive]
grace_seconds = 0.05
period_seconds = 0.05

[health]
period_seconds = 0.1

[timeouts]
drain_seconds = {drain_seconds}
"""


@asynccontextmanager
async def serving(
    engine: FakeEngine, folder: Path, drain_seconds: float = 20.0
) -> AsyncIterator[tuple[TaoProcess, httpx.AsyncClient]]:
    """A gateway process that is ready, and a client of it."""
    config = folder / "tao.toml"
    config.write_text(CONFIG.format(drain_seconds=drain_seconds))
    async with tao(*serve_arguments(engine.url, config=str(config))) as process:
        await process.ready()
        async with plain_http(process.url) as http:
            yield process, http


async def held_turns(http: httpx.AsyncClient) -> int:
    return int((await http.get("/state")).json()["held_turns"])


async def test_sigterm_drains(tmp_path: Path) -> None:
    gate = asyncio.Event()
    busy = says("a b", gate=gate, counts=usage(2000, 10))
    async with (
        fake_engine(capacity_tokens=4096, default=busy) as engine,
        serving(engine, tmp_path) as (process, http),
    ):
        body, headers = chat_request(words(2000), "first", stream=True)
        running = asyncio.ensure_future(http.post("/v1/chat/completions", json=body, headers=headers))
        await until(lambda: engine.now == 1)
        body, headers = chat_request(words(2000), "second")
        held = asyncio.ensure_future(http.post("/v1/chat/completions", json=body, headers=headers))
        body, headers = chat_request(words(2000), "third", stream=True)
        streaming = asyncio.ensure_future(http.post("/v1/chat/completions", json=body, headers=headers))
        await until(lambda: held_turns_are(http, 2))

        process.signal(signal.SIGTERM)
        refused = await held
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert refused.json()["error"]["code"] == "draining"
        told = await streaming
        assert "TAO is shutting down" in told.text
        late = await http.post("/v1/chat/completions", json=chat_request("hello", "new")[0])
        assert late.status_code == 503
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["why"]) == (503, "shutting down")
        assert process.process.returncode is None, "a turn still runs"

        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n")
        assert await process.ended() == 0, process.story()
        assert not process.group_lives()
        assert b"Traceback" not in process.err


async def held_turns_are(http: httpx.AsyncClient, count: int) -> bool:
    return await held_turns(http) == count


@pytest.mark.parametrize("signals", [1, 2])
async def test_the_drain_has_an_end(tmp_path: Path, signals: int) -> None:
    """At its bound, or with the second signal, what still runs is cut, and the client sees that."""
    never = asyncio.Event()
    bound = 0.3 if signals == 1 else 1000.0
    async with (
        fake_engine(default=says("a b", gate=never)) as engine,
        serving(engine, tmp_path, bound) as (process, http),
    ):
        body, headers = chat_request("hello", "first", stream=True)
        async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            process.signal(signal.SIGTERM)
            if signals == 2:
                await until(lambda: is_draining(http))
                process.signal(signal.SIGTERM)
            rest = await cut_rest(pieces)
            assert b"TAO is shutting down" in rest
        assert await process.ended() == 0, process.story()
        assert not process.group_lives()
        assert b"Traceback" not in process.err, process.story()
        await until(lambda: engine.aborted == 1)


async def is_draining(http: httpx.AsyncClient) -> bool:
    return (await http.get("/readyz")).status_code == 503


async def cut_rest(pieces: AsyncIterator[bytes]) -> bytes:
    """What still comes of a stream whose connection is then cut."""
    got = b""
    try:
        async for piece in pieces:
            got += piece
    except httpx.RemoteProtocolError:
        return got
    raise AssertionError(f"complete, but should have been cut: {got!r}")


async def test_ctrl_c_ends_an_idle_gateway_at_once() -> None:
    """It had started although a replica is down, which its log names; its planner goes with it."""
    async with fake_engine() as engine:
        arguments = serve_arguments(engine.url, "http://127.0.0.1:1")
        async with tao(*arguments, "--log-format", "json") as process:
            await process.ready()
            async with plain_http(process.url) as http:
                assert (await http.get("/readyz")).status_code == 200
            process.signal(signal.SIGINT)
            assert await process.ended() == 0, process.story()
            assert not process.group_lives()
        entries = [json.loads(line) for line in process.err.splitlines()]
        (entry,) = [entry for entry in entries if entry["event"] == "replica cannot be reached"]
        assert entry["replica"] == "127.0.0.1:1"
        assert "Connect call failed" in entry["detail"]


async def test_what_it_is_told_to_keep_is_there_when_it_has_ended(tmp_path: Path) -> None:
    """What was learned, and the trace: also of a session that was still open."""
    learned, trace = tmp_path / "learned.json", tmp_path / "live.jsonl.gz"
    async with fake_engine(default=says("ok", tools=["bash"], counts=usage(300, 20))) as engine:
        kept = ["--state-file", str(learned), "--record-trace", str(trace)]
        async with tao(*serve_arguments(engine.url), *kept) as process:
            await process.ready()
            async with plain_http(process.url) as http:
                for _turn in range(3):
                    body, headers = chat_request("hello", "s")
                    answer = await http.post("/v1/chat/completions", json=body, headers=headers)
                    assert answer.status_code == 200
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0, process.story()
    assert "bash" in json.dumps(msgspec.json.decode(learned.read_bytes())["state"])
    (session,) = read_trace(trace)
    assert [turn.tool.name if turn.tool else None for turn in session.turns] == ["bash", "bash", None]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for the child in /proc")
async def test_a_signal_to_all_while_the_planner_starts_ends_it_without_a_word() -> None:
    """As a terminal and a supervisor send it. The planner leaves it to its parent, which drains as ever."""
    async with fake_engine() as engine, tao(*serve_arguments(engine.url)) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def planner_runs() -> bool:
            return any(os.getpgid(int(child)) == int(child) for child in children.read_text().split())

        await until(planner_runs, 30.0)
        os.killpg(process.pid, signal.SIGTERM)
        assert await process.ended() == 0, process.story()
        assert b"Traceback" not in process.err, process.story()


async def test_the_port_is_taken(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        arguments = ["serve", "--replica", "http://127.0.0.1:1", "--port", str(engine.port)]
        async with tao(*arguments) as process:
            assert await process.ended() == 2
            told = process.err.decode()
            assert f"cannot listen on 127.0.0.1:{engine.port}: Address already in use" in told
            assert "Traceback" not in told
            assert not process.group_lives()


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def agents(count: int, turns: int) -> list[TraceSession]:
    tool = TraceTool(name="bash", duration_seconds=2.0)
    return [
        TraceSession(
            session_id=f"agent-{number}",
            turns=tuple(
                TraceTurn(
                    prompt_tokens=400 + 300 * turn,
                    output_tokens=40,
                    tool=tool if turn + 1 < turns else None,
                )
                for turn in range(turns)
            ),
        )
        for number in range(count)
    ]


def emulate(port: int = 0) -> list[str]:
    return ["emulate", "--port", str(port), "--kv-tokens", "20000", "--speed", "25"]


async def test_kill_9_of_a_replica_in_the_middle_of_a_replay(tmp_path: Path) -> None:
    """No request hangs: each succeeds elsewhere or is told clearly; the replica comes back empty and is used again."""
    log = tmp_path / "run.log"
    async with tao(*emulate()) as one, tao(*emulate()) as two:
        await asyncio.gather(one.ready(), two.ready())
        arguments = [*serve_arguments(one.url, two.url), "--speed", "25", "--record-log", str(log)]
        async with tao(*arguments) as gateway:
            await gateway.ready()
            run = Replay(ReplayConfig(gateway.url, concurrency=6, speed=25.0, retries_max=3), agents(8, 4))
            replaying = asyncio.ensure_future(run.run())
            async with plain_http(gateway.url) as http:
                await until(lambda: len(run.measurements) >= 6)
                await until(lambda: turns_on(http, one))
                one.signal(signal.SIGKILL)
                await one.ended()
                await until(lambda: replica_is(http, one, "down"))
                async with tao(*emulate(one.port)) as again:
                    await until(lambda: replica_is(http, one, "up"))
                    await asyncio.wait_for(replaying, 40)
                    summary = summarise(run.measurements, workers=6)
                    assert (summary.turns, summary.turns_failed) == (32, 0), run.failures
                    config = ReplayConfig(gateway.url, concurrency=4, speed=25.0, run_id="again-")
                    more = await asyncio.wait_for(replay(config, agents(4, 1)), 20)
                    assert [turn.error for turn in more] == [None] * 4
                    gateway.signal(signal.SIGTERM)
                    assert await gateway.ended() == 0, gateway.story()
                    assert again.process.returncode is None
    assert_used_again(log, one.url[7:])


async def test_kill_9_of_the_gateway_costs_its_log_about_a_second(tmp_path: Path) -> None:
    """Without another event, and whole: it can be read and replayed to its end."""
    path = tmp_path / "run.log"
    async with fake_engine(default=says("ok", counts=usage(300, 20))) as engine:
        async with tao(*serve_arguments(engine.url), "--record-log", str(path)) as process:
            await process.ready()
            async with plain_http(process.url) as http:
                body, headers = chat_request("hello", "s")
                for _turn in range(3):
                    assert (await http.post("/v1/chat/completions", json=body, headers=headers)).is_success

            def finished() -> int:
                text = path.read_text("utf-8")
                return text.count('{"event":{"TurnFinished"')

            await until(lambda: finished() == 3, 5.0)
            process.signal(signal.SIGKILL)
            await process.ended()
        recorded = read_log(path)
        assert len(list(recorded)) >= 7
        assert replay_log(recorded, make_policy(recorded.policy), recorded.settings) == []


async def turns_on(http: httpx.AsyncClient, replica: TaoProcess) -> bool:
    replicas = (await http.get("/state")).json()["replicas"]
    return any(r["turns_in_flight"] for r in replicas if r["id"] == replica.url[7:])


async def replica_is(http: httpx.AsyncClient, replica: TaoProcess, state: str) -> bool:
    replicas = (await http.get("/state")).json()["replicas"]
    return any(r["state"] == state for r in replicas if r["id"] == replica.url[7:])


def assert_used_again(log: Path, replica: str) -> None:
    """The log of the run holds together, and shows turns on the replica after it was back."""
    recorded = read_log(log)
    assert replay_log(recorded, make_policy(recorded.policy), recorded.settings) == []
    kinds = [
        (type(entry.event).__name__, getattr(entry.event, "replica", None), entry.commands)
        for entry in recorded
    ]
    (lost,) = [at for at, (kind, name, _) in enumerate(kinds) if (kind, name) == ("ReplicaLost", replica)]
    joined = next(
        at
        for at, (kind, name, _) in enumerate(kinds)
        if at > lost and (kind, name) == ("ReplicaJoined", replica)
    )
    used = [c for _, _, commands in kinds[joined:] for c in commands if type(c).__name__ == "DispatchTurn"]
    assert any(command.replica == replica for command in used)  # type: ignore[attr-defined]
    between = [
        c for _, _, commands in kinds[lost:joined] for c in commands if type(c).__name__ == "DispatchTurn"
    ]
    assert all(command.replica != replica for command in between)  # type: ignore[attr-defined]
