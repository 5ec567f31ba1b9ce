"""Reporting tools to a gateway under test, and what its core made of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import Front, fronted, until

from tao.core.phases import Acting


@asynccontextmanager
async def acting(
    *tools: str, headers: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[tuple[Front, FakeEngine]]:
    """A gateway with one session "s" whose tools run."""
    async with fake_engine() as engine, fronted(engine.url, **settings) as front:
        await turn(front, engine, *tools, headers=headers)
        yield front, engine


async def turn(
    front: Front, engine: FakeEngine, *tools: str, session: str = "s", headers: dict[str, str] | None = None
) -> None:
    """One turn of the session, which asks for these tools."""
    engine.then(says("ok", tools=list(tools), counts=usage(300, 20)))
    assert (await front.chat(session=session, headers=headers)).status_code == 200
    await until(lambda: not front.turns())


async def report(
    front: Front,
    event: str,
    call_id: str = "c1",
    *,
    session: str = "s",
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> httpx.Response:
    """One event of TAO's own kind."""
    body = {"session": session, "event": event, "call_id": call_id, **fields}
    return await front.http.post("/v1/tao/tools", json=body, headers=headers)


async def outcome(front: Front, event: str, call_id: str = "c1", **fields: Any) -> str:
    """What became of an event that was taken in."""
    told = await report(front, event, call_id, **fields)
    assert told.status_code == 200, told.text
    return str(told.json()["outcome"])


def phase(front: Front, session: str = "s") -> Acting:
    """The session's phase, which must be one in which tools run."""
    known = front.session(session)
    assert known is not None
    assert isinstance(known.phase, Acting), known.phase
    return known.phase


def is_over(front: Front, session: str = "s") -> bool:
    """Whether the session's tools were seen to end."""
    return phase(front, session).finished_at is not None
