"""A whole gateway on a loopback socket, in this process, in front of emulated or fake replicas; and patience.

`fronted` starts one, `emulated` a replica; `until` waits for a condition with a deadline. The core's invariants are
checked after every event, and nothing may be left on the books or in the air when the block ends.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any

import httpx
import msgspec

from tao.core.commands import Command
from tao.core.events import Event, TurnArrived
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import Policy
from tao.core.session import Session
from tao.emulator import Emulator, EmulatorConfig, start_emulator
from tao.enginemodel import load_profile
from tao.gateway.config import GatewayConfig, Health
from tao.gateway.driver import Observer
from tao.gateway.gateway import Gateway
from tao.gateway.http.asgi import App
from tao.gateway.http.server import serving
from tao.gateway.http.upstream import HttpUpstream
from tao.gateway.planner import PlanSolver
from tao.gateway.probe import HttpProbe
from tao.gateway.sources import ReplicaSource
from tao.planning import Answer, Problem, WorkerStats, solve
from tao.policies import make_policy
from tao.record.livetrace import TraceRecorder

MODEL = "m"
SECONDS_MAX = 10.0
POLL_SECONDS = 0.005
QUICK_HEALTH = Health(period_seconds=0.05, timeout_seconds=1.0, failures_max=2)


async def until(
    condition: Callable[[], object | Awaitable[object]], seconds_max: float = SECONDS_MAX
) -> None:
    """Return once `condition` is true, asked again and again; AssertionError after `seconds_max`."""
    deadline = asyncio.get_running_loop().time() + seconds_max
    while True:
        value = condition()
        if await value if isawaitable(value) else value:
            return
        assert asyncio.get_running_loop().time() < deadline, f"not so after {seconds_max} s: {condition}"
        await asyncio.sleep(POLL_SECONDS)


class InlineSolver:
    """Computes plans in this process: the same solvers, without the second that starting another process takes."""

    stats = WorkerStats()

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    async def solve(self, problem: Problem, solver: str, deadline_seconds: float) -> Answer:
        return solve(problem, solver)


@dataclass(slots=True)
class Front:
    """A running gateway and a client of it. `log`: every event with its commands."""

    gateway: Gateway
    url: str
    http: httpx.AsyncClient
    log: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    failure: str | None = None  # what the core is expected to have failed with

    # --- asking -----------------------------------------------------------------------------------------------------

    async def chat(self, text: str = "hello", session: str | None = None, **more: Any) -> httpx.Response:
        """One chat completion of a short conversation; `more` goes into the body, `headers` apart."""
        body, headers = chat_request(text, session, **more)
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    def chatting(
        self, text: str = "hello", session: str | None = None, **more: Any
    ) -> asyncio.Task[httpx.Response]:
        """The same in the background."""
        return asyncio.get_running_loop().create_task(self.chat(text, session, **more))

    @asynccontextmanager
    async def streaming(
        self, text: str = "hello", session: str | None = None, **more: Any
    ) -> AsyncIterator[httpx.Response]:
        """A streamed chat completion whose headers are there; leaving the block hangs up."""
        body, headers = chat_request(text, session, stream=True, **more)
        async with self.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            yield response

    async def cut_stream(self, path: str, body: dict[str, Any]) -> bytes:
        """What came of a stream whose connection is cut before its end; an assertion where it is not."""
        got = b""
        try:
            async with self.http.stream("POST", path, json={**body, "stream": True}) as response:
                async for chunk in response.aiter_raw():
                    got += chunk
        except httpx.RemoteProtocolError:
            return got
        raise AssertionError(f"complete, but should have been cut: {got!r}")

    # --- looking ----------------------------------------------------------------------------------------------------

    async def state(self) -> dict[str, Any]:
        answer = await self.http.get("/state")
        assert answer.status_code == 200
        state: dict[str, Any] = answer.json()
        return state

    async def sessions(self) -> dict[str, dict[str, Any]]:
        """The open sessions of `/state` by id."""
        return {session["id"]: session for session in (await self.state())["sessions"]}

    def session(self, name: str) -> Session | None:
        """A session of the core, by the client's own id."""
        known = self.gateway.driver.scheduler.view.sessions
        found = [session for session in known if session == name or session.partition("/")[2] == name]
        return known[found[0]] if found else None

    def reserved_tokens(self, url: str) -> int:
        """What is booked on a replica."""
        view = self.gateway.driver.scheduler.view
        replica = ReplicaId(url.removeprefix("http://"))
        return view.replicas[replica].capacity_tokens - view.free_tokens(replica)

    def turns(self) -> int:
        """Turns that have not ended."""
        return len(self.gateway.driver.scheduler.view.turns)

    def held(self) -> int:
        return self.gateway.driver.scheduler.view.held_turns

    def events(self, kind: type[Event]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event, _ in self.log if isinstance(event, kind)]

    def events_of_turns(self) -> list[TurnArrived]:
        """The turns that arrived, in order."""
        return self.events(TurnArrived)

    def commands(self, kind: type[Command]) -> list[Any]:
        """The commands of one kind, in order."""
        return [command for _, commands in self.log for command in commands if isinstance(command, kind)]

    def end(self, session: Session) -> None:
        self.gateway._turns.forget_session(SessionId(session.id))

    def note(self, event: Event, commands: Sequence[Command]) -> None:
        """Observer: remember, and check what must always hold."""
        self.log.append((event, tuple(commands)))
        try:
            self.gateway.driver.scheduler.check_invariants()
        except AssertionError as error:
            self.broken.append(f"after {event}: {error!r}")


def plain_http(base_url: str = "") -> httpx.AsyncClient:
    """A client that loads no certificates, which would take longer than most tests."""
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=SECONDS_MAX, verify=plain)


def words(tokens: int) -> str:
    """Text that TAO takes for about so many tokens."""
    return "lorem ip " * (tokens * 4 // 9)


def chat_request(
    text: str, session: str | None, *, headers: dict[str, str] | None = None, **more: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of a chat completion. A session says its name first: what begins alike is booked once."""
    content = text if session is None else f"{session}: {text}"
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8, **more}
    named = {} if session is None else {"x-session-id": session}
    return body, {**named, **(headers or {})}


@asynccontextmanager
async def fronted(
    *urls: str,
    policy: str | Policy = "tao",
    observers: Sequence[Observer] = (),
    sources: Sequence[ReplicaSource] = (),
    admin_token: str | None = None,
    recorder: TraceRecorder | None = None,
    solver: PlanSolver | None = None,
    **settings: Any,
) -> AsyncIterator[Front]:
    """A gateway in front of these replicas. `settings` are fields of `GatewayConfig`."""
    config = replace_struct(GatewayConfig(replicas=urls, port=0, health=QUICK_HEALTH), settings)
    upstream, probe = HttpUpstream(config.timeouts), HttpProbe()
    chosen = make_policy(policy) if isinstance(policy, str) else policy

    def note(event: Event, commands: Sequence[Command]) -> None:
        front.note(event, commands)

    gateway = Gateway(
        config,
        chosen,
        upstream,
        probe,
        observers=(note, *observers),
        solver=solver or InlineSolver(),
        sources=sources,
        admin_token=admin_token,
        recorder=recorder,
    )
    front = Front(gateway, "", plain_http())
    try:
        async with serving(App(gateway, config.limits.body_bytes_max), grace_seconds=1.0) as (host, port):
            front.url = f"http://{host}:{port}"
            front.http.base_url = front.url
            yield front
            await front.http.aclose()
            await until(lambda: not front.turns())
            _assert_nothing_left(front)
    finally:
        await front.http.aclose()
        await upstream.close()
        await probe.close()


def replace_struct(config: GatewayConfig, changes: dict[str, Any]) -> GatewayConfig:
    """A copy with other values."""
    return msgspec.structs.replace(config, **changes)


def _assert_nothing_left(front: Front) -> None:
    assert not front.broken, front.broken
    assert front.gateway.driver.failure == front.failure
    scheduler = front.gateway.driver.scheduler
    for session in list(scheduler.view.sessions.values()):
        front.end(session)
    scheduler.check_invariants()
    assert not scheduler.view.sessions
    assert all(
        scheduler.view.free_tokens(r.id) == r.capacity_tokens for r in scheduler.view.replicas.values()
    )


@asynccontextmanager
async def emulated(**settings: Any) -> AsyncIterator[Emulator]:
    """An emulated replica, fast and small unless told otherwise; `settings` are fields of `EmulatorConfig`."""
    defaults = EmulatorConfig(load_profile("qwen3-32b-tp2-h100"), speed=200.0, model=MODEL, kv_tokens=200_000)
    emulator = await start_emulator(replace(defaults, **settings))
    try:
        yield emulator
    finally:
        await emulator.close()


async def restarted(emulator: Emulator) -> Emulator:
    """A killed replica comes back, empty, on the port of before. The caller closes it."""
    return await start_emulator(replace(emulator.service.config, port=emulator.port))
