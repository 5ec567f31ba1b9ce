"""`replica_slots`: a replica is given no more sessions than its engine runs at once, however much memory it has."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import Front, fronted, until, words

from tao.cli.serve import command
from tao.core.events import ReplicaLost
from tao.core.ids import ReplicaId
from tao.engines import read_slots, slots_paths
from tao.gateway.config import ConfigError, load_config
from tao.gateway.slots import ENGINE, SlotsOf
from tao.gateway.sources import WatchedFile

HERE, THERE = "http://127.0.0.1:1", "http://127.0.0.1:2"
TOKEN = "a-token-of-some-length"
VLLM = {"vllm_config": {"scheduler_config": {"max_num_seqs": 3}}}


async def test_a_session_is_held_while_all_slots_are_taken() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(capacity_tokens=1_000_000) as engine,
        fronted(engine.url, replica_slots=1) as front,
    ):
        engine.then(says("a b", gate=gate, counts=usage(100, 10)))
        first = front.chatting(words(100), "first", stream=True)
        await until(lambda: engine.now == 1)
        second = front.chatting(words(100), "second")
        await until(lambda: front.held() == 1)
        gate.set()
        await first
        front.end(front.session("first"))  # type: ignore[arg-type]
        assert (await second).status_code == 200


def slots(front: Front, engine: FakeEngine) -> int | None:
    return front.gateway.driver.scheduler.view.replicas[ReplicaId(engine.url[7:])].slots


async def test_why_a_session_waits_names_the_slots() -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url, slots={engine.url: 1}) as front:
        engine.then(says("a b", gate=gate, counts=usage(100, 10)))
        first = front.chatting(words(100), "first", stream=True)
        await until(lambda: engine.now == 1)
        second = front.chatting(words(100), "second")
        await until(lambda: front.held() == 1)
        why = (await front.http.get("/explain/second")).json()["why"]
        assert "all slots are taken" in why
        (shown,) = (await front.state())["replicas"]
        assert (shown["slots"], shown["free_slots"]) == (1, 0)
        page = (await front.http.get("/metrics")).text
        assert f'tao_replica_slots{{replica="{engine.url[7:]}"}} 1.0' in page
        assert f'tao_replica_free_slots{{replica="{engine.url[7:]}"}} 0.0' in page
        gate.set()
        await first
        front.end(front.session("first"))  # type: ignore[arg-type]
        await second


async def test_single_replicas_may_have_slots_of_their_own() -> None:
    async with (
        fake_engine() as small,
        fake_engine() as other,
        fronted(small.url, other.url, replica_slots=7, slots={small.url: 2}) as front,
    ):
        assert (slots(front, small), slots(front, other)) == (2, 7)


async def test_without_a_setting_nothing_but_capacity_bounds_whatever_the_engine_tells() -> None:
    async with fake_engine(server_info=VLLM) as engine, fronted(engine.url) as front:
        assert slots(front, engine) is None
        (shown,) = (await front.state())["engines"]
        assert shown["slots"] == 3
        assert "tao_replica_slots{" not in (await front.http.get("/metrics")).text


async def test_as_many_as_the_engine_tells_read_again_when_it_comes_back() -> None:
    async with fake_engine(server_info=VLLM) as engine, fronted(engine.url, replica_slots=ENGINE) as front:
        assert slots(front, engine) == 3
        await engine.die()
        await until(lambda: not front.gateway.fleet.up())
        engine.server_info = {"vllm_config": {"scheduler_config": {"max_num_seqs": 5}}}
        await engine.start()
        await until(lambda: slots(front, engine) == 5)


async def test_an_engine_that_does_not_tell_is_bounded_by_its_capacity() -> None:
    async with fake_engine() as engine, fronted(engine.url, replica_slots=ENGINE) as front:
        assert slots(front, engine) is None
        assert (await front.chat("hello", "s")).status_code == 200
        assert len(engine.asked) == 1


@pytest.mark.parametrize(
    ("own", "each", "by_url", "told", "expected"),
    [
        (None, None, {}, 9, None),
        (None, 4, {}, 9, 4),
        (None, ENGINE, {}, 9, 9),
        (None, ENGINE, {}, None, None),
        (None, ENGINE, {HERE + "/": 2}, 9, 2),
        (None, 4, {THERE: 2}, 9, 4),
        (6, 4, {HERE: 2}, 9, 6),
        (6, None, {}, None, 6),
    ],
)
def test_the_nearest_word_counts(
    own: int | None, each: int | str | None, by_url: dict[str, int], told: int | None, expected: int | None
) -> None:
    assert SlotsOf(each, by_url)(ReplicaId("127.0.0.1:1"), own, told) == expected


# --- what is said where a replica is named ---------------------------------------------------------------------------


async def test_the_word_of_a_file_counts_more_than_the_configuration_and_follows_the_file(
    tmp_path: Path,
) -> None:
    async with fake_engine() as one, fake_engine() as two, fake_engine() as three:
        file = tmp_path / "replicas.json"

        def tell(slots_of_one: dict[str, int]) -> None:
            entries = [{"url": one.url, **slots_of_one}, two.url, three.url]
            file.write_text(json.dumps({"replicas": entries}))

        tell({"slots": 5})
        sources, by_url = [WatchedFile(file, 0.01)], {one.url: 2, two.url: 3}
        async with fronted(one.url, sources=sources, replica_slots=7, slots=by_url) as front:
            assert [slots(front, engine) for engine in (one, two, three)] == [5, 3, 7]
            tell({"slots": 6})
            await until(lambda: slots(front, one) == 6)
            assert not front.events(ReplicaLost), "a change of slots costs no cache"
            tell({})
            await until(lambda: slots(front, one) == 2)


async def test_an_operator_gives_a_replica_slots_and_more_of_them(tmp_path: Path) -> None:
    gate = asyncio.Event()
    file = tmp_path / "replicas.toml"
    async with fake_engine() as engine:
        file.write_text(f'replicas = [{{url = "{engine.url}", slots = 9}}]')
        sources = [WatchedFile(file, 0.01)]
        async with fronted(sources=sources, admin_token=TOKEN, replica_slots=7) as front:

            async def add(**more: int) -> dict[str, Any]:
                headers = {"authorization": f"Bearer {TOKEN}"}
                body = {"url": engine.url, **more}
                answer = await front.http.post("/v1/tao/replicas", json=body, headers=headers)
                told: dict[str, Any] = answer.json()["now"]
                return told

            assert slots(front, engine) == 9
            assert (await add(slots=1))["own_slots"] == 1
            assert slots(front, engine) == 1
            engine.then(says("a b", gate=gate, counts=usage(100, 10)), says("c", counts=usage(100, 10)))
            first = front.chatting(words(100), "first", stream=True)
            await until(lambda: engine.now == 1)
            second = front.chatting(words(100), "second")
            await until(lambda: front.held() == 1)
            await add(slots=2)
            assert (await second).status_code == 200, "the held session is placed at once"
            assert (await add())["own_slots"] == 9, "without slots the operator's earlier word is taken back"
            gate.set()
            await first


# --- what engines tell ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "document", "ranks", "expected"),
    [
        ("vllm", VLLM, 1, 3),
        ("vllm", VLLM, 4, 12),
        ("vllm", {"vllm_config": "VllmConfig(max_num_seqs=3)"}, 1, None),  # asked for as text
        ("vllm", {"vllm_config": {"scheduler_config": {"max_num_seqs": True}}}, 1, None),
        ("sglang", {"internal_states": [{"effective_max_running_requests_per_dp": 128}]}, 1, 128),
        ("sglang", {"internal_states": [{"effective_max_running_requests_per_dp": 64}] * 3}, 1, 192),
        ("sglang", {"internal_states": [{}, {}], "max_running_requests": 40}, 1, 40),
        ("sglang", {"internal_states": "no", "max_running_requests": None}, 1, None),
        ("sglang", {"max_running_requests": 0}, 1, None),
        ("sglang", {"max_running_requests": 1 << 40}, 1, None),
        ("sglang", [1, 2], 1, None),
        ("vllm", None, 1, None),
        ("unknown", VLLM, 1, None),
    ],
)
def test_what_documents_tell(engine: str, document: Any, ranks: int, expected: int | None) -> None:
    assert read_slots(engine, document, ranks) == expected


def test_engines_that_nobody_knows_are_not_asked() -> None:
    assert slots_paths("unknown") == ()


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"replica_slots": 0}, "replica_slots must be at least 1, not 0"),
        ({"replica_slots": "many"}, "replica_slots must be a number or 'engine', not 'many'"),
        ({"slots": {HERE: 0}}, "[slots] 'http://127.0.0.1:1': must be at least 1, not 0"),
        ({"slots": {THERE: 1}}, "[slots] names 'http://127.0.0.1:2', which is no replica"),
        ({"slots": {"127.0.0.1:1": 1}}, "[slots]: "),
        ({"slots": {HERE: 1, HERE + "/": 2}}, "[slots] names one replica twice: "),
        ({"slots": {HERE: "many"}}, "Expected `int`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, replicas=(HERE,), **settings)
    assert told in str(refused.value)


def test_slots_of_replicas_that_are_yet_to_come() -> None:
    assert load_config(None, replicas_dns=("http://x:1",), slots={THERE: 1}).slots == {THERE: 1}


@pytest.mark.parametrize("given", ["0", "-1", "some", "1.5"])
def test_the_option_takes_a_number_or_engine(given: str) -> None:
    result = CliRunner().invoke(command, ["--replica", HERE, "--replica-slots", given])
    assert result.exit_code == 2
    assert "--replica-slots" in result.output
