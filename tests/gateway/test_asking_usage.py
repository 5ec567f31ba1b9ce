"""`--ask-usage` through a whole gateway: the core learns what a client never asked for, and the client sees none of it."""

import json
from typing import Any

import httpx
import pytest
from gateway_kit import Front, emulated, fronted, until, words


async def stream(http: httpx.AsyncClient, text: str, **more: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer, without `[DONE]`, which must be there."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 20, "stream": True}
    answer = await http.post("/v1/chat/completions", json={**body, **more}, headers={"x-session-id": "s"})
    assert answer.status_code == 200
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


def source(front: Front) -> str:
    session = front.session("s")
    assert session is not None
    return next((seen.source.value for seen in session.evidence.values()), "")


@pytest.mark.parametrize("ask", [True, False])
async def test_the_core_knows_the_counts_and_the_client_does_not(ask: bool) -> None:
    async with emulated() as emulator, fronted(emulator.url, ask_usage=ask) as front:
        events = await stream(front.http, words(300))
        assert all(event["choices"] for event in events)
        assert all(event.get("usage") is None for event in events)
        await until(lambda: source(front))
        assert source(front) == ("cached-tokens" if ask else "own-accounting")


async def test_a_client_that_asks_gets_what_it_asks_for() -> None:
    async with emulated() as emulator, fronted(emulator.url, ask_usage=True) as front:
        events = await stream(front.http, words(300), stream_options={"include_usage": True})
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] > 0
