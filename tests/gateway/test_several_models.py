"""Several models behind one gateway: who is asked, what is refused, and what a name stands for."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from fake_engine import FakeEngine, fake_engine, says
from gateway_kit import Front, fronted, until

from tao.core.events import ModelsChanged
from tao.gateway.config import SchedulerConfig

NOWHERE = "http://127.0.0.1:1"
NO_WAIT = SchedulerConfig(no_replica_seconds_max=0.2)


@asynccontextmanager
async def two(**settings: Any) -> AsyncIterator[tuple[FakeEngine, FakeEngine, Front]]:
    """One engine serves `small`, the other `large` and its adapter."""
    async with (
        fake_engine(models=("small",), default=says("from small")) as small,
        fake_engine(models=("large", "large-sql"), default=says("from large")) as large,
        fronted(small.url, large.url, **settings) as front,
    ):
        yield small, large, front


async def test_a_turn_goes_where_its_model_is_served() -> None:
    async with two() as (small, large, front):
        for number in range(6):
            model = ("small", "large", "large-sql")[number % 3]
            answer = await front.chat(session=f"s{number}", model=model)
            assert answer.json()["choices"][0]["message"]["content"] == f"from {model[:5]}"
        assert (len(small.asked), len(large.asked)) == (2, 4)
        shown = {replica["id"]: replica["models"] for replica in (await front.state())["replicas"]}
        assert shown == {small.url[7:]: ["small"], large.url[7:]: ["large", "large-sql"]}


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/chat/completions", {"type": "invalid_request_error", "code": "model_not_found"}),
        ("/v1/responses", {"type": "invalid_request_error", "code": "model_not_found"}),
        ("/v1/messages", {"type": "not_found_error"}),
        ("/v1/embeddings", {"type": "invalid_request_error", "code": "model_not_found"}),
    ],
)
async def test_an_unknown_model_is_refused_with_the_models_that_there_are(
    path: str, error: dict[str, str]
) -> None:
    async with two() as (small, large, front):
        body = {
            "model": "huge",
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "x"}],
            "input": "x",
        }
        answer = await front.http.post(path, json=body)
        assert answer.status_code == 404
        told = answer.json()["error"]
        assert (
            "The model `huge` does not exist on any replica; there are: small, large, large-sql"
            in told["message"]
        )
        assert error.items() <= told.items()
        assert small.asked == large.asked == []
        assert front.turns() == 0


async def test_the_models_of_all_replicas_are_listed() -> None:
    async with two() as (_, _, front):
        listed = (await front.http.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["small", "large", "large-sql"]


async def test_what_passes_through_goes_where_its_model_is_served() -> None:
    async with two() as (small, large, front):
        for _ in range(3):
            await front.http.post("/v1/embeddings", json={"model": "large", "input": "x"})
        assert (len(small.asked), len(large.asked)) == (0, 3)


async def test_a_model_whose_replicas_are_down_is_waited_for() -> None:
    async with two(scheduler=NO_WAIT) as (_, large, front):
        large.healthy = False
        await until(lambda: len(front.gateway.fleet.up()) == 1)
        answer = await front.chat(session="s", model="large")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert (await front.chat(session="t", model="small")).status_code == 200


async def test_a_name_may_stand_for_a_model() -> None:
    aliases = {"claude-haiku": "small", "*": "large"}
    async with two(model_aliases=aliases) as (small, large, front):
        await front.chat(session="a", model="claude-haiku")
        await front.chat(session="b", model="claude-opus")
        assert [asked.body["model"] for asked in small.asked] == ["claude-haiku"], "it passes as it is"
        assert [asked.body["model"] for asked in large.asked] == ["claude-opus"]


async def test_an_adapter_named_behind_its_model_is_where_the_model_is() -> None:
    async with two() as (_, large, front):
        assert (await front.chat(session="s", model="large:my-adapter")).status_code == 200
        assert large.asked[0].body["model"] == "large:my-adapter"


async def test_an_engine_that_tells_no_models_is_asked_for_any() -> None:
    async with fake_engine(models=()) as engine, fronted(engine.url) as front:
        assert (await front.chat(session="s", model="whatever")).status_code == 200


async def test_a_model_that_is_loaded_later_is_noticed() -> None:
    async with two() as (small, _, front):
        small.models = ("small", "small-sql")
        await until(lambda: front.events(ModelsChanged))
        assert (await front.chat(session="s", model="small-sql")).status_code == 200
        assert small.asked[0].body["model"] == "small-sql"


async def test_a_replica_that_never_answered_takes_no_name_away() -> None:
    """Aliases, adapters and the refusal of unknown models go by what the others tell."""
    settings: dict[str, Any] = {"model_aliases": {"claude-haiku": "small"}, "scheduler": NO_WAIT}
    async with fake_engine(models=("small",)) as small, fronted(small.url, NOWHERE, **settings) as front:
        for model in ("claude-haiku", "small:mine", "small"):
            assert (await front.chat(session=model, model=model)).status_code == 200
        answer = await front.chat(session="s", model="huge")
        assert answer.status_code == 404
        assert answer.json()["error"]["message"].endswith("there are: small")
        assert [turn.model for turn in front.events_of_turns()] == ["small"] * 3


async def test_what_nobody_tells_goes_to_a_replica_that_does_not_tell() -> None:
    aliases = {"claude-haiku": "small"}
    async with (
        fake_engine(models=("small",)) as small,
        fake_engine(models=()) as silent,
        fronted(small.url, silent.url, model_aliases=aliases) as front,
    ):
        for model in ("huge", "huge:mine", "claude-haiku"):
            assert (await front.chat(session=model, model=model)).status_code == 200
        assert [turn.model for turn in front.events_of_turns()] == ["huge", "huge:mine", "small"]
        assert [asked.body["model"] for asked in silent.asked][:2] == ["huge", "huge:mine"]


async def test_a_name_that_stands_for_a_model_waits_for_it_where_nothing_is_known_yet() -> None:
    engine = FakeEngine()
    await engine.start()
    await engine.die()
    async with fronted(engine.url, model_aliases={"claude-haiku": "m"}) as front, AsyncExitStack() as stack:
        held = front.chatting(session="s", model="claude-haiku")
        await until(lambda: front.held() == 1)
        await engine.start()
        stack.push_async_callback(engine.die)
        assert (await held).status_code == 200
