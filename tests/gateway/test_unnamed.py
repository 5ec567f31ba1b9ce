"""An engine that does not say whose blocks it stores: turns are recognised by their lengths, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from math import inf
from random import Random

import pytest
from fake_engine import status
from gateway_kit import Front, emulated, fronted, until, words
from kv_kit import CLEARED, stored
from watch_kit import evidence, follower_of, heard, published

from tao.core.events import CacheFlushed, Usage
from tao.core.ids import ReplicaId, SessionId
from tao.emulator import Emulator
from tao.engines.kv_index import BlockIndex
from tao.engines.kv_wire import BlocksRemoved, BlocksStored
from tao.gateway.cachewatch import PERIOD_SECONDS
from tao.gateway.unnamed import LOOKS_MAX, UNHEARD_LOOKS_MAX, Ended, Served, Unnamed

BLOCK = 16
A, B = SessionId("a"), SessionId("b")
HERE = ReplicaId("r")


class Engine:
    """One rank that stores blocks without names, and the turns that are looked for."""

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.unnamed = Unnamed()

    def store(self, blocks: int, at: float, *, after: int | None = None, first: int = 1) -> int:
        """A chunk of new blocks; the last one's hash."""
        hashes = tuple(range(first, first + blocks))
        self.index.apply(BlocksStored(hashes, after, BLOCK, 0, None, "GPU", None), at)
        return hashes[-1]

    def ended(
        self,
        session: SessionId,
        since: float,
        prompt: int,
        output: int,
        cached: int = 0,
        name: str | None = None,
    ) -> None:
        usage = Usage(prompt, output, cached)
        served, itself = Served(session, HERE, since, 0), name is not None
        self.unnamed.wait(Ended.of(served, name or session, usage, since + 1.0, named_itself=itself))

    def look(self, times: int = 1, heard_at: float | None = inf) -> None:
        for _ in range(times):
            self.unnamed.look([self.index], heard_at)

    def tokens(self, session: SessionId) -> int | None:
        return self.index.tokens(session)


@pytest.mark.parametrize("blocks", [6, 7], ids=["without-its-last-token", "with-it"])
def test_the_only_run_that_fits_is_the_turns(blocks: int) -> None:
    engine = Engine()
    last = engine.store(5, 1.0)
    engine.store(blocks - 5, 1.5, after=last, first=6)
    engine.ended(A, 0.5, prompt=80, output=32)
    engine.look()
    assert engine.tokens(A) == blocks * BLOCK
    assert (engine.unnamed.recognised, engine.unnamed.unrecognised) == (1, 0)
    assert A not in engine.unnamed


@pytest.mark.parametrize(
    ("prompt", "output", "cached", "since"),
    [
        (80, 64, 0, 0.5),  # would have stored more
        (64, 16, 0, 0.5),  # less
        (96, 10, 32, 0.5),  # had its beginning from the cache
        (96, 10, 0, 1.2),  # began after the blocks were stored
    ],
)
def test_what_does_not_fit_is_no_evidence(prompt: int, output: int, cached: int, since: float) -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.ended(A, since, prompt, output, cached)
    engine.look()
    assert A in engine.unnamed
    engine.look(LOOKS_MAX)
    assert A not in engine.unnamed
    assert engine.tokens(A) is None
    assert (engine.unnamed.recognised, engine.unnamed.unrecognised) == (0, 1)


def test_an_engine_that_tells_late_is_waited_for_as_long_as_it_is_silent() -> None:
    """SGLang tells of what a turn has stored with one of the next forty steps."""
    engine = Engine()
    last = engine.store(5, 1.0)
    engine.ended(A, 0.5, 96, 1)
    for heard_at in (None, 1.0):
        engine.look(LOOKS_MAX, heard_at)
    assert A in engine.unnamed
    engine.store(1, 3.0, after=last, first=6)
    engine.look(1, 3.0)
    assert engine.tokens(A) == 6 * BLOCK
    engine.ended(B, 0.5, 96, 64)
    engine.look(UNHEARD_LOOKS_MAX, 1.0)
    assert B not in engine.unnamed


@pytest.mark.parametrize(("heard_at", "tokens"), [(1.0, 7 * BLOCK), (0.2, None)])
def test_prompts_that_begin_alike_part_in_the_middle_of_a_piece(heard_at: float, tokens: int | None) -> None:
    """Of two at once that found nothing, the second to store goes on from where the first one differs."""
    engine = Engine()
    engine.store(9, heard_at)
    engine.store(4, 1.1, after=3, first=101)
    engine.ended(B, 0.5, 96, 17)
    engine.look(LOOKS_MAX)
    assert engine.tokens(B) == tokens


@pytest.mark.parametrize(("cached", "tokens"), [(80, 8 * BLOCK), (64, None)])
def test_a_prompt_that_the_engine_had_in_full(cached: int, tokens: int | None) -> None:
    """Its last block is computed all the same, and stored no second time."""
    engine = Engine()
    last = engine.store(6, 1.0)
    engine.store(2, 3.0, after=last, first=11)
    engine.ended(A, 2.0, prompt=96, output=33, cached=cached)
    engine.look()
    assert engine.tokens(A) == tokens


def test_clients_that_name_themselves_leave_the_others_recognised() -> None:
    """SGLang names a session by the id in the body, and knows no other."""
    engine = Engine()
    engine.index = BlockIndex(was_given={A, B}.__contains__)
    engine.ended(B, 0.5, 96, 17, name="its-own")
    engine.index.apply(BlocksStored(tuple(range(101, 108)), None, BLOCK, 0, None, "GPU", "its-own"), 1.0)
    engine.store(7, 1.0)
    engine.ended(A, 0.5, 96, 17)
    engine.look(LOOKS_MAX)
    assert (engine.tokens(A), engine.index.tokens("its-own")) == (7 * BLOCK, 7 * BLOCK)
    assert (engine.index.echoes, engine.index.echoes_others) == (False, True)
    assert (engine.unnamed.recognised, engine.unnamed.unrecognised) == (1, 0)


def test_two_runs_that_fit_are_no_evidence() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.store(6, 1.0, first=101)
    engine.ended(A, 0.5, 96, 8)
    engine.look(LOOKS_MAX)
    assert engine.tokens(A) is None


def test_two_turns_that_fit_one_run_have_none() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 8)
    engine.ended(B, 0.6, 96, 9)
    engine.look()
    engine.look(LOOKS_MAX)
    assert (engine.tokens(A), engine.tokens(B)) == (None, None)
    assert engine.unnamed.unrecognised == 2


def test_turns_at_once_are_told_apart_by_their_lengths() -> None:
    engine = Engine()
    last_a, last_b = engine.store(6, 1.0), engine.store(9, 1.0, first=101)
    engine.store(1, 1.2, after=last_b, first=110)
    engine.store(1, 1.3, after=last_a, first=7)
    engine.ended(A, 0.5, 96, 17)
    engine.ended(B, 0.6, 144, 17)
    engine.look()
    assert (engine.tokens(A), engine.tokens(B)) == (7 * BLOCK, 10 * BLOCK)


def test_blocks_that_come_a_little_late_are_waited_for() -> None:
    engine = Engine()
    last = engine.store(5, 1.0)
    engine.ended(A, 0.5, 96, 1)
    engine.look()
    assert A in engine.unnamed
    engine.store(1, 2.1, after=last, first=6)
    engine.look()
    assert engine.tokens(A) == 96


def test_the_next_turn_goes_on_from_the_chain_of_the_last() -> None:
    engine = Engine()
    last = engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    assert engine.unnamed.found(A, [engine.index])  # it is dispatched again at once
    assert engine.tokens(A) == 96
    engine.store(4, 2.5, after=last, first=7)
    engine.ended(A, 2.0, 160, 1, cached=96)
    engine.look()
    assert engine.tokens(A) == 160
    engine.index.apply(BlocksRemoved((8,), 0, "GPU"))
    assert engine.tokens(A) == 7 * BLOCK


def test_a_turn_that_is_not_recognised_leaves_no_older_figure_either() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    engine.look()
    engine.ended(A, 3.0, 960, 1, cached=96)  # nothing of it was heard
    engine.look(LOOKS_MAX)
    assert engine.tokens(A) is None


def test_a_turn_whose_session_has_ended_another_one_is_looked_for_no_more() -> None:
    engine = Engine()
    engine.ended(A, 0.5, 96, 1)
    engine.look()
    last = engine.store(6, 1.0)
    engine.store(4, 2.5, after=last, first=7)
    engine.ended(A, 2.0, 160, 1, cached=96)
    engine.look()
    assert engine.tokens(A) == 160
    assert (engine.unnamed.recognised, engine.unnamed.unrecognised) == (1, 1)


def test_of_several_ranks_one_that_missed_something_leaves_nothing_to_tell() -> None:
    engine, other = Engine(), BlockIndex()
    other.apply(BlocksStored((51, 52), None, BLOCK, 0, None, "GPU", None), 1.0)
    other.apply(BlocksStored((99,), 98, BLOCK, 0, None, "GPU", None), 1.0)
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    for _ in range(LOOKS_MAX):
        engine.unnamed.look([other, engine.index], inf)
    assert engine.tokens(A) is None


def test_a_turn_that_filled_no_block_leaves_the_chain_as_it_is() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    engine.look()
    engine.ended(A, 3.0, 100, 5, cached=96)
    engine.look()
    assert A not in engine.unnamed
    assert engine.tokens(A) == 96
    assert engine.unnamed.unrecognised == 0


def test_a_block_that_was_evicted_since_makes_it_no_evidence() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.index.apply(BlocksRemoved((3,), 0, "GPU"))
    engine.ended(A, 0.5, 96, 1)
    engine.look(LOOKS_MAX)
    assert engine.tokens(A) is None


def test_an_engine_that_turns_out_to_name_sessions_is_left_alone() -> None:
    engine = Engine()
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    engine.index.apply(BlocksStored((201,), None, BLOCK, 0, None, "GPU", "b"), 1.5)
    engine.look()
    assert A not in engine.unnamed
    assert engine.tokens(A) is None
    assert engine.unnamed.unrecognised == 0


def test_of_several_ranks_the_one_whose_run_fits_is_it() -> None:
    engine, other = Engine(), BlockIndex()
    other.apply(BlocksStored(tuple(range(50, 70)), None, BLOCK, 0, None, "GPU", None), 1.0)
    engine.store(6, 1.0)
    engine.ended(A, 0.5, 96, 1)
    engine.unnamed.look([other, engine.index], inf)
    assert (other.tokens(A), engine.tokens(A)) == (None, 96)


class Model:
    """An engine whose cache is known: sessions share a beginning, run at once, store in pieces, and lose their tails."""

    SHARED_BLOCKS = 3

    def __init__(self, chance: Random, *, twins: bool, lengths: tuple[int, int]) -> None:
        """`twins`: every two sessions have the same prompts and answers, as far as these go. `lengths`: what a turn adds."""
        self.chance = chance
        self.twins = twins
        self.lengths = lengths
        self.engine = Engine()
        self.cached: set[int] = set()
        self.contexts: dict[SessionId, int] = {}  # tokens
        self.running: dict[
            SessionId, tuple[float, int, int, int]
        ] = {}  # since, prompt, output, cached tokens
        self.stored: dict[SessionId, int] = {}  # blocks of the running turn so far
        self.at = 0.0

    def block(self, session: SessionId, position: int) -> int:
        return (
            1 + position
            if position < self.SHARED_BLOCKS
            else 1_000 * (1 + int(session) // (1 + self.twins)) + position
        )

    def present(self, session: SessionId) -> int:
        """Blocks of the session's context that are there, from the first one on."""
        blocks = 0
        while blocks < self.contexts.get(session, 0) // BLOCK and self.block(session, blocks) in self.cached:
            blocks += 1
        return blocks

    def begin(self, session: SessionId) -> None:
        prompt = self.contexts.get(session, BLOCK * self.SHARED_BLOCKS) + self.chance.randrange(*self.lengths)
        cached = 0
        while (cached + 1) * BLOCK < prompt and self.block(session, cached) in self.cached:
            cached += 1
        self.running[session] = self.at, prompt, self.chance.randrange(*self.lengths), cached * BLOCK
        self.stored[session] = cached
        if session in self.engine.unnamed:
            self.engine.unnamed.found(session, [self.engine.index])

    def step(self, session: SessionId) -> None:
        """The next piece of the turn, or its end."""
        since, prompt, output, cached = self.running[session]
        first, end = self.stored[session], (prompt + output - 1) // BLOCK
        if first < end:
            until = min(end, first + self.chance.randrange(1, 4))
            blocks = tuple(self.block(session, each) for each in range(first, until))
            parent = self.block(session, first - 1) if first else None
            self.engine.index.apply(BlocksStored(blocks, parent, BLOCK, 0, None, "GPU", None), self.at)
            self.cached.update(blocks)
            self.stored[session] = until
        else:
            del self.running[session]
            self.contexts[session] = prompt + output
            self.engine.ended(session, since, prompt, output, cached)

    def evict(self) -> None:
        idle = [each for each in self.contexts if each not in self.running and self.present(each)]
        if idle:
            session = self.chance.choice(idle)
            block = self.block(session, self.present(session) - 1)
            if block >= 1_000:
                self.cached.discard(block)
                self.engine.index.apply(BlocksRemoved((block,), 0, "GPU"), self.at)


@pytest.mark.parametrize("lengths", [(1, 60), (30, 34)], ids=["all-lengths", "much-the-same-length"])
@pytest.mark.parametrize("twins", [False, True], ids=["others", "twins"])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_told_is_never_more_than_the_engine_has(
    seed: int, twins: bool, lengths: tuple[int, int]
) -> None:
    chance = Random(seed)
    model = Model(chance, twins=twins, lengths=lengths)
    sessions = [SessionId(str(number)) for number in range(6)]
    for _ in range(400):
        model.at += 0.01
        session = chance.choice(sessions)
        if session in model.running:
            model.step(session)
        elif chance.random() < 0.3:
            model.begin(session)
        elif chance.random() < 0.3:
            model.evict()
        if chance.random() < 0.3:
            model.engine.look()
        for each in model.contexts:
            assert (model.engine.tokens(each) or 0) <= model.present(each) * BLOCK, each
    assert model.engine.unnamed.recognised > 5


# --- through a whole gateway ------------------------------------------------------------------------------------------


def is_known(front: Front, least: int, most: int) -> bool:
    """Whether KV events tell that much of the session `s`."""
    tokens, source = evidence(front, "s")
    return source == "kv-events" and least <= tokens <= most


@asynccontextmanager
async def watched(*, echo: bool, **settings: int) -> AsyncIterator[tuple[Front, Emulator]]:
    """A gateway that follows an emulated replica whose stream has been heard."""
    events = {"kv_events": "tcp://127.0.0.1:*", "kv_events_replay": "tcp://127.0.0.1:*"}
    async with (
        emulated(**events, kv_events_echo=echo, **settings) as emulator,
        fronted(emulator.url, policy="round-robin") as front,
    ):
        numbers = count()

        async def heard() -> bool:
            await front.chat(f"{next(numbers)} " + words(40), "warm-up", headers={"x-session-final": "true"})
            return bool((await told(front))["live"])

        await until(heard)
        yield front, emulator


async def told(front: Front) -> dict[str, object]:
    (row,) = (await front.state())["kv_events"]
    return dict(row)


@pytest.mark.parametrize("echo", [True, False], ids=["echo", "no-echo"])
async def test_a_session_is_known_block_by_block_whether_it_is_named_or_not(echo: bool) -> None:
    async with watched(echo=echo) as (front, _):
        for tokens in (600, 1_100, 1_900):
            await front.chat(words(tokens), "s")
            session = front.session("s")
            assert session is not None
            most = session.footprint_tokens
            await until(partial(is_known, front, most - 2 * BLOCK, most))
        row = await told(front)
        assert row["echoes"] is echo
        assert bool(row["recognised"]) is not echo
        page = (await front.http.get("/metrics")).text
        assert "tao_kv_events_recognised_total{" in page


async def test_an_evicted_session_without_a_name_loses_its_credit_before_it_returns() -> None:
    async with watched(echo=False, kv_tokens=8_000) as (front, _):
        await front.chat(words(3_000), "victim")
        await until(lambda: evidence(front, "victim")[1] == "kv-events")
        for number in range(4):
            await front.chat(f"{number} " + words(3_000), f"other-{number}")
        await until(lambda: evidence(front, "victim") == (0, ""))


async def test_a_flush_voids_what_was_recognised() -> None:
    async with watched(echo=False) as (front, emulator):
        await front.chat(words(1_000), "s")
        await until(lambda: evidence(front, "s")[1] == "kv-events")
        await front.http.post(emulator.url + "/reset_prefix_cache")
        await front.chat("hello", "another")
        await until(lambda: evidence(front, "s") == (0, ""))


async def test_blocks_that_come_after_a_flush_are_no_turns_of_before() -> None:
    async with published(admin_token="secret") as (front, engine, publisher):
        await heard(front, engine, publisher)
        await front.chat("hello", "s")  # 1,010 tokens, of which nothing was told yet
        engine.then(status(200, b"{}"))
        flushed = await front.http.post("/v1/tao/flush", headers={"authorization": "Bearer secret"})
        assert flushed.status_code == 200
        await publisher.publish(stored(list(range(1, 64)), None, None))
        follower = follower_of(front)
        await until(lambda: follower.index.blocks == 63)
        await asyncio.sleep(3 * PERIOD_SECONDS)
        assert evidence(front, "s") == (0, "")


async def test_an_engine_that_names_some_clients_leaves_the_others_recognised() -> None:
    async with published() as (front, engine, publisher):
        await publisher.publish(stored([900], None, "its-own"))
        await heard(front, engine, publisher)
        await front.chat("hello", "s")
        await publisher.publish(stored(list(range(1, 64)), None, None))
        await until(lambda: evidence(front, "s") == (1_008, "kv-events"))


async def test_a_flush_that_was_before_the_gateway_came_concerns_no_turn() -> None:
    """It is replayed with the first event that is heard, and that is one of the turn's own."""
    async with published(first=CLEARED) as (front, _, publisher):
        await front.chat("hello", "s")
        await publisher.publish(stored(list(range(1, 64)), None, None))
        await until(lambda: evidence(front, "s") == (1_008, "kv-events"))
        assert front.events(CacheFlushed) == []


async def test_many_at_once_are_believed_no_more_than_they_have() -> None:
    """Sessions of all lengths, some of the same, in parallel: what is told of each is what the engine has of it."""
    chance = Random(7)
    lengths = [chance.randrange(300, 3_000) for _ in range(20)] + [1_000] * 4
    texts = [f"{number:03} " + words(tokens) for number, tokens in enumerate(lengths)]
    async with watched(echo=False) as (front, _):
        await asyncio.gather(*(front.chat(text, f"s{number}") for number, text in enumerate(texts)))

        def settled() -> bool:
            assert front.gateway._watch is not None
            (row,) = front.gateway._watch._watched.values()
            return not list(row.unnamed) and not row.dirty

        await until(settled)
        known = [evidence(front, f"s{number}") for number in range(len(texts))]
        assert sum(source == "kv-events" for _, source in known) >= 12
        for number, (tokens, source) in enumerate(known):
            session = front.session(f"s{number}")
            assert session is not None
            assert tokens <= session.footprint_tokens
            if source == "kv-events":
                answer = await front.chat(texts[number] + " and more", f"s{number}")
                cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert cached >= min(tokens, session.footprint_tokens) - 3 * BLOCK, (number, tokens, cached)
        row = await told(front)
        assert row["recognised"]
