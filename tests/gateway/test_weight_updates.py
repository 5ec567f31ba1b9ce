"""New weights for the engines: dispatch is held between begin and end, what runs goes on, credit is void."""

import asyncio
from typing import Any

import httpx
import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.events import WeightsUpdateEnded

TOKEN = "a-token-of-some-length"
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def weights(front: Front, what: str, path: str = "/v1/tao/weights", **body: Any) -> httpx.Response:
    return await front.http.post(f"{path}/{what}", json=body, headers=BEARER)


@pytest.mark.parametrize("path", ["/v1/tao/weights", "/weight_sync"])
async def test_turns_wait_from_the_begin_to_the_end(path: str) -> None:
    async with emulated() as replica, fronted(replica.url, speed=20.0, admin_token=TOKEN) as front:
        await front.chat(words(500), "s")
        session = front.session("s")
        assert session is not None
        assert session.evidence
        begun = await weights(front, "begin", path, deadline_seconds=60)
        assert begun.json() == {"updating": True, "turns_in_flight": 0, "held_turns": 0}
        held = [front.chatting(words(600), "s"), front.chatting(words(100), "new")]
        await until(lambda: front.held() == 2)
        assert (await front.state())["weights_update_ends_in_seconds"] > 0
        assert "weights are updated" in (await front.http.get("/explain/s")).json()["why"]
        ended = await weights(front, "end", path)
        assert ended.json()["updating"] is False
        answers = await asyncio.gather(*held)
        assert {answer.status_code for answer in answers} == {200}
        assert answers[0].headers["x-tao-decision"].endswith("reason=home"), "it has its admission again"
        assert (await weights(front, "end", path)).status_code == 200, "once more is no error"


async def test_what_runs_goes_on_and_its_credit_is_void() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(default=says("a b", gate=gate, counts=usage(600, 10))) as engine,
        fronted(engine.url, admin_token=TOKEN) as front,
    ):
        running = front.chatting(words(600), "s", stream=True)
        await until(lambda: engine.now == 1)
        assert (await weights(front, "begin")).json()["turns_in_flight"] == 1
        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n")
        session = front.session("s")
        assert session is not None
        assert session.evidence, "computed with the old weights"
        await weights(front, "end")
        assert session.evidence == {}


async def test_a_trainer_that_dies_does_not_hold_turns_for_ever(logs: list[dict[str, Any]]) -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        await weights(front, "begin", deadline_seconds=0.2)
        assert (await front.chat(session="s")).status_code == 200
        assert not front.events(WeightsUpdateEnded)
    said = [entry["event"] for entry in logs if "nobody has ended" in entry["event"]]
    assert len(said) == 1


async def test_a_held_stream_is_kept_alive_meanwhile() -> None:
    from tao.gateway.config import KeepAlive

    keep = KeepAlive(grace_seconds=0.02, period_seconds=0.02)
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN, keep_alive=keep) as front:
        await weights(front, "begin")
        async with front.streaming(session="s") as response:
            lines = response.aiter_lines()
            assert await anext(lines) == ": keep-alive"
            await weights(front, "end")
            assert [line async for line in lines][-2] == "data: [DONE]"


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"deadline_seconds": 0}', '{"deadline_seconds": 1e9}', '{"x": 1}']
)
async def test_what_is_wrong_is_named(body: str) -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        answer = await front.http.post("/v1/tao/weights/begin", content=body, headers=BEARER)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "malformed_request")
        assert (await front.http.post("/v1/tao/weights/begin", json={})).status_code == 401
        assert (await front.chat(session="s")).status_code == 200, "nothing began"
