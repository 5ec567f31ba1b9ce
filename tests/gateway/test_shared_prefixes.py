"""What sessions begin with alike takes room on a replica once, and stays booked until the last of them is gone."""

import asyncio
from typing import Any

from fake_engine import fake_engine, says, usage
from gateway_kit import Front, fronted, until, words

from tao.policies.reserve import RESERVE_TOKENS

PROMPT_TOKENS, OUTPUT_TOKENS = 5_000, 10
WEIGHT_TOKENS = PROMPT_TOKENS + OUTPUT_TOKENS + RESERVE_TOKENS
SYSTEM = {"role": "system", "content": words(4_000)}


async def ask(front: Front, session: str, **more: Any) -> None:
    messages = [SYSTEM, {"role": "user", "content": f"I am {session}"}]
    assert (await front.chat(session=session, messages=messages, **more)).status_code == 200


def shared_tokens(front: Front) -> int:
    """What the latest turn was said to begin with."""
    return sum(piece.tokens for piece in front.events_of_turns()[-1].shared_prefix)


def end(front: Front, name: str) -> None:
    session = front.session(name)
    assert session is not None
    front.end(session)


async def test_a_system_prompt_is_booked_once_until_the_last_session_with_it_is_gone() -> None:
    answer = says("ok", counts=usage(PROMPT_TOKENS, OUTPUT_TOKENS))
    async with fake_engine(default=answer) as engine, fronted(engine.url) as front:
        await ask(front, "first")
        assert front.reserved_tokens(engine.url) == WEIGHT_TOKENS
        await ask(front, "second")
        once_tokens = shared_tokens(front)
        assert 3_000 < once_tokens < 4_000
        assert front.reserved_tokens(engine.url) == 2 * WEIGHT_TOKENS - once_tokens
        explained = (await front.http.get("/explain/second")).json()
        assert explained["values"]["shared_prefix_tokens"] == once_tokens
        await ask(front, "first")  # the ratio was learned meanwhile: the piece is the same
        assert front.reserved_tokens(engine.url) == 2 * WEIGHT_TOKENS - once_tokens
        end(front, "first")
        assert front.reserved_tokens(engine.url) == WEIGHT_TOKENS
        end(front, "second")
        assert front.reserved_tokens(engine.url) == 0


async def test_salted_caches_are_booked_each() -> None:
    answer = says("ok", counts=usage(PROMPT_TOKENS, OUTPUT_TOKENS))
    async with fake_engine(default=answer) as engine, fronted(engine.url) as front:
        await ask(front, "first", cache_salt="a")
        await ask(front, "second", cache_salt="b")
        assert front.reserved_tokens(engine.url) == 2 * WEIGHT_TOKENS


async def test_who_begins_as_others_do_fits_where_a_stranger_waits() -> None:
    gate = asyncio.Event()
    async with fake_engine(capacity_tokens=9_008) as engine, fronted(engine.url) as front:
        engine.default = says("a b", gate=gate, counts=usage(PROMPT_TOKENS, OUTPUT_TOKENS))
        started = [front.chatting(session="first", messages=[SYSTEM], stream=True)]
        await until(lambda: engine.now == 1)
        started.append(front.chatting(words(4_000), "stranger", stream=True))
        await until(lambda: front.held() == 1)
        started.append(front.chatting(session="second", messages=[SYSTEM], stream=True))
        await until(lambda: engine.now == 2)
        assert front.held() == 1
        gate.set()
        await started[0]
        end(front, "first")
        await started[2]
        end(front, "second")
        assert (await started[1]).status_code == 200
