"""`replica_slots`: a replica is given no more sessions than its engine runs at once, however much memory it has."""

import asyncio

import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import fronted, until, words

from tao.gateway.config import ConfigError, load_config


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


def test_slots_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="replica_slots must be at least 1, not 0"):
        load_config(None, replicas=("http://127.0.0.1:1",), replica_slots=0)
