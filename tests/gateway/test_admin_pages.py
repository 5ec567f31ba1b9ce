"""What operators read: health, readiness, state, metrics, explanations, models; and what passes through."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from fake_engine import MODEL, Asked, fake_engine, says, status, usage
from gateway_kit import emulated, fronted, until, words
from prometheus_client.parser import text_string_to_metric_families


async def test_state_shows_replicas_sessions_and_engines() -> None:
    async with emulated() as replica, fronted(replica.url, speed=20.0) as front:
        await front.chat(session="s")
        state = await front.state()
        assert state["policy"] == "tao"
        assert state["speed"] == 20.0
        assert state["sessions_total"] == 1
        (shown,) = state["replicas"]
        assert shown["id"] == replica.url[7:]
        assert shown["free_tokens"] == shown["capacity_tokens"] - shown["reserved_tokens"]
        (session,) = state["sessions"]
        assert session["id"] == "public/s"
        assert session["last_placement"]["reason"] == "room"
        (engine,) = state["engines"]
        assert (engine["up"], engine["engine"], engine["problems"]) == (True, "vllm", [])


async def test_replicas_and_engines_stand_in_one_order() -> None:
    """Also where the first to be named is the last to come up."""
    async with fake_engine() as late, fake_engine() as early:
        late.healthy = False
        async with fronted(late.url, early.url) as front:
            await until(lambda: len(front.gateway.fleet.up()) == 1)
            late.healthy = True
            await until(lambda: len(front.gateway.fleet.up()) == 2)
            state = await front.state()
            assert [replica["id"] for replica in state["replicas"]] == [late.url[7:], early.url[7:]]
            assert [engine["id"] for engine in state["engines"]] == [late.url[7:], early.url[7:]]


async def test_ages_are_as_of_now() -> None:
    """Also when nothing has happened for a while."""
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(session="s")

        async def older() -> bool:
            (session,) = (await front.state())["sessions"]
            return bool(session["evidence"][engine.url[7:]]["age_seconds"] > 0.1)

        await until(older)


async def test_explain_names_the_values_behind_a_place() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("ok", tools=["bash"], counts=usage(300, 20)))
        await front.chat(session="s")
        for name in ("s", "public/s", "public%2Fs"):
            told = (await front.http.get(f"/explain/{name}")).json()
            assert told["why"] == f"its tool runs; it keeps its admission on {engine.url[7:]}"
        assert told["values"]["weight_tokens"] == 320 + 512
        assert 250 < told["values"]["credit_tokens"][engine.url[7:]] <= 320, "it decays"
        assert told["values"]["return"]["tools"] == ["bash"]


@pytest.mark.parametrize("name", ["a%41b", "100%", "a/../b c", "ü€😀", "?q#f", "public/s", "x" * 1000])
async def test_explain_takes_any_id_of_a_client(name: str) -> None:
    """Also one that TAO knows by a digest, because it is long or has odd characters."""
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(says("ok", counts=usage(300, 20)))
        answer = await front.chat(session_id=name)
        told = await front.http.get(f"/explain/{quote(name, safe='')}")
        assert told.json()["id"] == answer.headers["x-tao-session"]


async def test_a_deadline_is_shown_in_model_seconds_with_the_speed_beside_it() -> None:
    """As every time of the page is: the client's 30 seconds are 300 of the model at this speed."""
    async with fake_engine() as engine, fronted(engine.url, speed=10.0) as front:
        await front.chat(session="s", vllm_xargs={"agentic_context": {"deadline_seconds": 30}})
        told = (await front.http.get("/explain/s")).json()
        assert told["speed"] == (await front.state())["speed"] == 10.0
        assert 30 < told["urgency"]["deadline_in_seconds"] <= 300


async def test_readiness_and_health() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        assert (await front.http.get("/healthz")).json() == {"status": "ok"}
        ready = await front.http.get("/readyz")
        assert ready.json() == {"ready": True, "why": None, "replicas": {engine.url[7:]: True}}
        head = await front.http.head("/readyz")
        assert (head.status_code, head.content) == (200, b"")
        assert (await front.http.get("/")).json() == {"service": "tao", "see": "/state"}


async def test_the_metrics_count() -> None:
    async with (
        fake_engine(default=says("a b", counts=usage(500, 20, 400))) as engine,
        fronted(engine.url) as front,
    ):
        await front.chat(session="s", stream=True)
        engine.then(status(500))
        await front.chat(session="s")
        page = await front.http.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(page.text)}
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in families.values()
            for sample in family.samples
            if "le" not in sample.labels
        }
        assert samples["tao_turns_total", "finished"] == 1
        assert samples["tao_turns_total", "failed"] == 1
        assert samples["tao_dispatches_total", engine.url[7:], "room"] == 1
        assert [samples["tao_tokens_total", kind] for kind in ("prompt", "cached", "output")] == [
            500,
            400,
            20,
        ]
        assert samples["tao_hold_seconds_count",] == 2
        assert samples["tao_ttft_seconds_count",] == 1
        assert samples["tao_replica_up", engine.url[7:]] == 1
        assert samples["tao_replica_turns_in_flight", engine.url[7:]] == 0


async def test_what_no_engine_counts_is_estimated() -> None:
    async with fake_engine(default=says("a b c d", counts={})) as engine, fronted(engine.url) as front:
        answer = await front.chat(words(400), session="s", stream=True)
        assert "usage" not in answer.text
        families = text_string_to_metric_families((await front.http.get("/metrics")).text)
        told = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
        assert told["tao_tokens_estimated_total", "prompt"] == pytest.approx(400, rel=0.3)
        assert told["tao_tokens_estimated_total", "output"] > 0
        assert ("tao_tokens_total", "prompt") not in told


async def test_no_page_tells_prompts_or_keys(logs: list[dict[str, Any]]) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        gate = asyncio.Event()
        engine.then(says("ok"), status(400), says("a b", gate=gate))
        headers = {"authorization": "Bearer hidden-key"}
        for _ in range(2):
            await front.chat("hidden prompt", session="s", headers=headers)
        running = front.chatting("hidden prompt", session="t", headers=headers, stream=True)
        await until(lambda: engine.now == 1)
        pages = [
            (await front.http.get(page)).text for page in ("/state", "/metrics", "/explain/s", "/readyz")
        ]
        gate.set()
        await running
        assert "hidden" not in "".join(pages)
        assert "hidden" not in repr(logs)
        assert any(entry["event"] == "turn finished" for entry in logs)


async def test_models_are_merged() -> None:
    async with (
        emulated(model="m") as one,
        emulated(model="m") as two,
        emulated(model="n") as three,
        fronted(one.url, two.url, three.url) as front,
    ):
        merged = (await front.http.get("/v1/models")).json()
        assert merged["object"] == "list"
        assert sorted(model["id"] for model in merged["data"]) == ["m", "n"]
        assert all(model["max_model_len"] > 0 for model in merged["data"])


async def test_models_of_a_replica_that_does_not_answer_are_left_out() -> None:
    never = asyncio.Event()

    async with fake_engine() as engine, fronted(engine.url, "http://127.0.0.1:1") as front:
        merged = (await front.http.get("/v1/models")).json()
        assert [model["id"] for model in merged["data"]] == [MODEL]
        never.set()


async def test_everything_else_under_v1_passes_through_byte_for_byte() -> None:
    async def echo(asked: Asked) -> web.StreamResponse:
        body = asked.http.method.encode() + b" " + asked.http.path_qs.encode() + b" " + asked.raw
        return web.Response(status=207, body=body, headers={"x-odd": "1", "content-type": "x/y"})

    async with (
        fake_engine(default=echo) as one,
        fake_engine(default=echo) as two,
        fronted(one.url, two.url) as front,
    ):
        for method, path in (
            ("POST", "/v1/embeddings?a=%20b"),
            ("GET", "/v1/files/1"),
            ("DELETE", "/v1/responses/r1"),
            ("POST", "/v1/messages/count_tokens"),
            ("POST", "/tokenize"),
        ):
            answer = await front.http.request(method, path, content=b"\x00\xff")
            assert answer.status_code == 207
            assert answer.content == f"{method} {path} ".encode() + b"\x00\xff"
            assert (answer.headers["x-odd"], answer.headers["content-type"]) == ("1", "x/y")
        assert len(one.asked) + len(two.asked) == 5
        assert one.asked, "both replicas get their share"
        assert two.asked
        assert await front.sessions() == {}


async def test_a_pass_through_goes_elsewhere_when_a_replica_is_gone() -> None:
    async with fake_engine() as one, fake_engine() as two, fronted(one.url, two.url) as front:
        await one.die()
        answers = [await front.http.post("/v1/embeddings", json={}) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {200}
        await one.start()


async def test_count_tokens_is_no_turn() -> None:
    async with emulated() as replica, fronted(replica.url) as front:
        body = {"model": "m", "messages": [{"role": "user", "content": words(100)}]}
        counted = await front.http.post("/v1/messages/count_tokens", json=body)
        assert counted.json()["input_tokens"] > 90
        assert front.events_of_turns() == []
