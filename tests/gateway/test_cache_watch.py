"""KV events through a whole gateway: what is left of a session is known before it returns; nothing wrong is believed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from fake_engine import FakeEngine, drops, fake_engine, says, usage
from gateway_kit import Front, emulated, fronted, until, words
from kv_kit import CLEARED, END, frames, removed, stored
from watch_kit import described, evidence, follower_of, given, heard, live, published, session_told

from tao.core.events import (
    CacheFlushed,
    CacheWatchLost,
    TurnStopped,
    WeightsUpdateBegan,
    WeightsUpdateEnded,
)
from tao.emulator import Emulator
from tao.engines import kv_follow, kv_subscriber
from tao.gateway import cachewatch
from tao.gateway.cachewatch import PERIOD_SECONDS
from tao.gateway.kvsources import KvSourceConfig

EVENTS = {"kv_events": "tcp://127.0.0.1:*", "kv_events_replay": "tcp://127.0.0.1:*"}
BLOCK = 16
SOURCES_PATH = "/kv_event_sources"


@asynccontextmanager
async def watched(policy: str = "tao", **settings: Any) -> AsyncIterator[tuple[Front, Emulator]]:
    """A gateway that follows an emulated replica whose stream has been heard."""
    async with emulated(**{**EVENTS, **settings}) as emulator, fronted(emulator.url, policy=policy) as front:
        numbers = count()

        async def heard() -> bool:
            await front.chat(f"{next(numbers)} " + words(40), "warm-up", headers={"x-session-final": "true"})
            return live(front, emulator.url)

        await until(heard)
        yield front, emulator


async def test_a_session_is_known_block_by_block() -> None:
    async with watched() as (front, emulator):
        await front.chat(words(1_000), "s")
        await until(lambda: evidence(front, "s")[1] == "kv-events")
        session = front.session("s")
        assert session is not None
        await until(lambda: evidence(front, "s")[0] == session.footprint_tokens // BLOCK * BLOCK)
        (told,) = (await front.state())["kv_events"]
        assert (told["live"], told["problem"], told["replica"]) == (True, None, emulator.url[7:])
        assert told["streams"][0]["block_tokens"] == BLOCK
        assert told["streams"][0]["blocks"] >= 60
        shown = (await front.sessions())["public/s"]["evidence"][emulator.url[7:]]
        assert (shown["source"], shown["age_seconds"]) == ("kv-events", 0.0)
        page = (await front.http.get("/metrics")).text
        assert f'tao_kv_events_live{{replica="{emulator.url[7:]}"}} 1.0' in page


async def test_a_session_that_is_evicted_loses_its_credit_before_it_returns() -> None:
    async with watched("round-robin", kv_tokens=8_000) as (front, _):
        await front.chat(words(3_000), "victim")
        await until(lambda: evidence(front, "victim")[1] == "kv-events")
        for number in range(4):
            await front.chat(f"{number} " + words(3_000), f"other-{number}")
        await until(lambda: evidence(front, "victim") == (0, ""))
        answer = await front.chat(words(3_000), "victim")
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] <= BLOCK


async def test_a_flush_behind_its_back_is_seen_with_the_next_step() -> None:
    async with watched() as (front, emulator):
        await front.chat(words(1_000), "s")
        await until(lambda: evidence(front, "s")[1] == "kv-events")
        flushed = await front.http.post(emulator.url + "/reset_prefix_cache")
        assert flushed.json() == {"success": True}
        await front.chat("hello", "another")
        await until(lambda: evidence(front, "s") == (0, ""), seconds_max=2.0)
        assert len(front.events(CacheFlushed)) == 1


async def test_sessions_of_two_tenants_with_one_name_are_two() -> None:
    async with watched() as (front, _):
        keys = {"a": "Bearer one", "b": "Bearer two"}
        for text, key in keys.items():
            await front.chat(text + words(1_000), "same", headers={"authorization": key})
        sessions = front.gateway.driver.scheduler.view.sessions.values()

        def known() -> list[str]:
            return [e.source.value for s in sessions for e in s.evidence.values() if s.id.endswith("/same")]

        await until(lambda: known() == ["kv-events"] * 2)


async def test_an_id_in_the_body_is_what_the_engine_says_and_two_that_share_one_have_none() -> None:
    async with watched() as (front, _):
        await front.chat(words(1_000), None, session_id="mine")
        await until(lambda: evidence(front, "mine")[1] == "kv-events")
        await front.chat("b" + words(900), None, session_id="mine", headers={"authorization": "Bearer two"})
        await until(lambda: evidence(front, "public/mine")[1] == "cached-tokens")


async def test_an_id_in_the_body_that_is_anothers_name_here_takes_nothing_from_it() -> None:
    async with watched() as (front, _emulator):
        await front.chat(words(1_000), "s")
        await until(lambda: evidence(front, "s")[1] == "kv-events")
        told = evidence(front, "s")
        await front.chat("b" + words(300), None, session_id="public/s")
        (thief,) = [name for name in await front.sessions() if name != "public/s"]
        await until(lambda: evidence(front, thief)[1] == "kv-events")
        assert evidence(front, "s") == told
        assert evidence(front, thief)[0] < 600


async def test_what_is_told_again_of_a_context_that_was_cut_is_not_of_the_present_one() -> None:
    """An engine replays what it has stored when the gateway connects to it anew."""
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        former = given(front, "s")
        await front.chat("hello", "s", headers={"x-claude-code-context-compacted": "1"})
        await until(lambda: evidence(front, "s")[1] == "cached-tokens")
        assert engine.asked[-1].headers["x-session-id"] == given(front, "s") != former
        await publisher.publish(stored(list(range(1, 40)), None, former))
        await heard(front, engine, publisher)
        await asyncio.sleep(3 * PERIOD_SECONDS)
        assert evidence(front, "s")[1] == "cached-tokens"
        await publisher.publish(stored([50, 51], None, given(front, "s")))
        await until(lambda: evidence(front, "s") == (32, "kv-events"))


async def test_the_context_of_another_model_is_not_the_sessions_present_one() -> None:
    async with published(models=("m", "adapter")) as (front, engine, publisher):
        await session_told(front, engine, publisher)
        await front.chat("hello", "s", model="adapter")
        await publisher.publish(removed(39))
        await heard(front, engine, publisher)
        await asyncio.sleep(3 * PERIOD_SECONDS)
        assert evidence(front, "s")[1] == "cached-tokens"


async def test_nothing_is_kept_of_the_names_of_sessions_that_have_ended() -> None:
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        former = given(front, "s")
        await front.http.post("/programs/release", json={"program_id": "s"})
        watch = front.gateway._watch
        assert watch is not None
        assert (watch.names._number_of, watch._whose._lines) == ({}, {})
        await front.chat("hello", "s")
        assert given(front, "s") != former


async def test_what_a_gateway_before_has_named_is_nobodys_here() -> None:
    """Names of sessions without an id of their own begin anew with each gateway."""
    async with published() as (front, engine, publisher):
        await heard(front, engine, publisher)
        await front.chat("hello")
        (session,) = front.gateway.driver.scheduler.view.sessions.values()
        await publisher.publish(stored(list(range(1, 40)), None, session.id))
        await publisher.publish(stored(list(range(1, 40)), None, "0123456789abcdef:" + session.id))
        await publisher.publish(stored([90], None, given(front, "t")))
        follower = follower_of(front)
        await until(lambda: follower.index.blocks == 40)
        await asyncio.sleep(3 * PERIOD_SECONDS)
        assert [seen.source.value for seen in session.evidence.values()] == ["cached-tokens"]


async def test_what_was_stopped_is_told_again() -> None:
    """A client that hangs up leaves an estimate behind; the engine has told more."""
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        engine.then(says("a b", gate=asyncio.Event()))
        async with front.streaming("hello", "s") as response:
            await anext(response.aiter_raw())
        await until(lambda: front.events(TurnStopped))
        assert evidence(front, "s")[1] == "own-accounting"
        await until(lambda: evidence(front, "s") == (624, "kv-events"))


async def test_while_what_was_missed_is_replayed_nothing_is_told() -> None:
    """It is of the past: what comes after it may say otherwise."""
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        watch = front.gateway._watch
        assert watch is not None
        (watched,) = watch._watched.values()
        follower = follower_of(front)
        at = asyncio.get_running_loop().time()
        missed = follower._next or 0
        assert follower.receive(frames(missed + 2, removed(30), topic=b"kv", at=1e9), at) == missed - 1
        follower.replayed(frames(missed, removed(3), topic=b"kv", at=1e9), at)
        watch._tell(watched)
        assert evidence(front, "s") == (624, "cached-tokens"), "a memory, until it is known what was missed"
        follower.replayed(frames(missed + 1, stored([3], 2, given(front, "s")), topic=b"kv", at=1e9), at)
        follower.replayed([b"", END, b""], at)
        watch._tell(watched)
        assert evidence(front, "s") == (29 * BLOCK, "kv-events")


# --- what goes to the engine -------------------------------------------------------------------------------------------


async def test_the_engine_is_given_our_name_of_the_session_and_the_body_as_it_was() -> None:
    async with published() as (front, engine, _):
        await front.chat("hello", "s")
        assert engine.asked[0].headers["x-session-id"] == given(front, "s")
        side = {"x-claude-code-session-id": "s", "x-claude-code-request-class": "auxiliary"}
        await front.chat("a title, please", None, headers=side)
        assert "x-session-id" not in engine.asked[1].headers
        assert engine.asked[1].body["messages"][0]["content"] == "a title, please"


async def test_what_is_sent_again_to_one_that_is_not_watched_is_what_the_client_sent() -> None:
    async with (
        fake_engine(default=says("ok")) as other,
        published(beside=(other.url,), policy="round-robin") as (front, engine, _),
    ):
        engine.then(drops())
        await front.chat("hello", "s")
        assert engine.asked[0].headers["x-session-id"] == given(front, "s")
        assert other.asked[0].headers["x-session-id"] == "s"


async def test_a_replica_that_is_not_watched_gets_what_the_client_sent(logs: list[dict[str, Any]]) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await until(lambda: any(row["problem"] for row in described(front)))
        await front.chat("hello", "s")
        assert engine.asked[0].headers["x-session-id"] == "s"
        (told,) = (await front.state())["kv_events"]
        assert "publishes no KV events" in told["problem"]
        assert front.gateway._watch is not None
        for replica in front.gateway._watch._watched.values():
            front.gateway._watch._tell(replica)
    said = [entry["event"] for entry in logs if "a cache" in entry["event"]]
    assert said == ["not watching a cache"], "once, and as no warning"


async def test_switched_off_nobody_is_asked() -> None:
    async with published_off() as (front, engine):
        await front.chat("hello", "s")
        assert engine.asked[0].headers["x-session-id"] == "s"
        assert (await front.state())["kv_events"] == []
        assert "tao_kv_events" not in (await front.http.get("/metrics")).text


@asynccontextmanager
async def published_off() -> AsyncIterator[tuple[Front, FakeEngine]]:
    async with fake_engine(kv_sources=[]) as engine, fronted(engine.url, kv_events="off") as front:
        yield front, engine


# --- streams that misbehave --------------------------------------------------------------------------------------------


async def test_what_is_told_is_never_more_than_the_session_has() -> None:
    async with published() as (front, engine, publisher):
        await heard(front, engine, publisher)
        await front.chat("hello", "s")
        await publisher.publish(stored(list(range(1, 500)), None, given(front, "s")))
        await until(lambda: evidence(front, "s") == (1_010, "kv-events"))
        await publisher.publish(removed(3))
        await until(lambda: evidence(front, "s") == (32, "kv-events"))
        await publisher.publish(
            stored([1], None, given(front, "nobody")), stored([7], 6, given(front, "s"), group_idx=1)
        )
        await publisher.publish(CLEARED)
        await until(lambda: evidence(front, "s") == (0, ""))


async def test_a_gap_that_cannot_be_closed_makes_what_was_told_a_memory() -> None:
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        publisher.forget()
        await publisher.publish(lost=True)
        publisher.forget()
        await publisher.publish(stored([99], None, given(front, "t")))
        await until(lambda: evidence(front, "s") == (624, "cached-tokens"))
        assert len(front.events(CacheWatchLost)) == 1
        (told,) = (await front.state())["kv_events"]
        assert "are missing" in told["streams"][0]["last_loss"]


async def test_an_engine_that_cannot_tell_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachewatch, "ASK_AGAIN_SECONDS", 0.05)
    async with (
        fake_engine(
            kv_sources=[{"endpoint": "tcp://127.0.0.1:1", "topic": "kv"}], pages={SOURCES_PATH: (503, b"")}
        ) as engine,
        fronted(engine.url) as front,
    ):
        watch = front.gateway._watch
        assert watch is not None
        await until(lambda: "503" in str(watch.describe()))
        engine.pages.clear()
        await until(lambda: watch.describe()[0]["streams"])


async def test_a_page_of_sources_that_cannot_be_read_is_said() -> None:
    async with (
        fake_engine(pages={SOURCES_PATH: (200, b'{"sources": "\xff"}')}) as engine,
        fronted(engine.url) as front,
    ):
        watch = front.gateway._watch
        assert watch is not None
        await until(lambda: "no JSON" in str(watch.describe()))


async def test_where_nobody_says_what_was_cached_a_prompt_may_have_been() -> None:
    """A prompt that the engine has in full stores nothing, so an engine that tells nothing then is not silent."""
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        engine.then(says("ok", counts=usage(1_000, 10)), says("ok", counts=usage(1_000, 600)))
        await front.chat("hello", "t")
        assert follower_of(front)._expecting_since is None
        await front.chat("hello", "t")
        assert follower_of(front)._expecting_since is not None


async def test_an_endpoint_that_cannot_be_used_is_said_and_turns_go_on() -> None:
    sources = [{"endpoint": "ipc:///tmp/" + "long" * 50}]  # longer than a socket's path may be
    async with fake_engine(kv_sources=sources) as engine, fronted(engine.url) as front:

        async def said() -> bool:
            return "given up" in str((await front.state())["kv_events"])

        await until(said)
        assert (await front.chat("hello", "s")).status_code == 200
        assert engine.asked[0].headers["x-session-id"] == "s"


async def test_events_under_another_topic_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with published(topic=b"other") as (front, _, publisher):

        async def said() -> bool:
            await publisher.publish(stored([1], None, given(front, "s")))
            return "another topic" in str((await front.state())["kv_events"])

        await until(said)


async def test_a_silent_stream_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_follow, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(kv_subscriber, "LOOK_SECONDS", 0.05)
    async with published() as (front, engine, publisher):
        await session_told(front, engine, publisher)
        await front.chat("hello", "t")
        await until(lambda: evidence(front, "s")[1] == "cached-tokens")
        (told,) = (await front.state())["kv_events"]
        assert not told["live"]
        assert "no KV event came" in told["problem"]
        page = (await front.http.get("/metrics")).text
        assert f'tao_kv_events_live{{replica="{engine.url[7:]}"}} 0.0' in page
        watch = front.gateway._watch
        assert watch is not None
        await until(lambda: watch.describe()[0]["streams"][0]["reconnects"] == 1)  # type: ignore[index]
        await heard(front, engine, publisher)


async def test_a_turn_that_fills_no_block_of_a_large_size_makes_no_engine_silent() -> None:
    """Blocks of hybrid models are as large as a state of the other layers; the last token need not be computed."""
    async with published() as (front, engine, publisher):
        await heard(front, engine, publisher)
        await publisher.publish(stored([1], None, given(front, "s"), block_size=1_024))
        follower = follower_of(front)
        await until(lambda: follower.index.block_tokens == 1_024)
        engine.then(says("ok", counts=usage(1_000, 24, 0)), says("ok", counts=usage(1_000, 25, 0)))
        await front.chat("hello", "t")
        assert follower._expecting_since is None
        await front.chat("hello", "t")
        assert follower._expecting_since is not None


async def test_a_replica_that_dies_and_comes_back_is_followed_again() -> None:
    async with published() as (front, engine, publisher):
        await heard(front, engine, publisher)
        await front.chat("hello", "s")
        await publisher.publish(stored([1, 2], None, given(front, "s")))
        await until(lambda: evidence(front, "s") == (32, "kv-events"))
        await engine.die()
        await until(lambda: evidence(front, "s") == (0, ""))
        await engine.start()
        await heard(front, engine, publisher)
        await front.chat("hello", "s")
        await until(lambda: evidence(front, "s") == (32, "kv-events"))


@pytest.mark.parametrize("ended", [True, False], ids=["told", "deadline"])
async def test_what_was_computed_with_old_weights_is_not_believed_any_more(ended: bool) -> None:
    async with published() as (front, engine, publisher):
        await heard(front, engine, publisher)
        await front.chat("hello", "s")
        await publisher.publish(stored([1, 2], None, given(front, "s")))
        await until(lambda: evidence(front, "s") == (32, "kv-events"))
        driver = front.gateway.driver
        now = driver.clock.now()
        driver.feed(WeightsUpdateBegan(now, now + (60.0 if ended else 0.2)))
        if ended:
            driver.feed(WeightsUpdateEnded(driver.clock.now()))
        await until(lambda: evidence(front, "s") == (0, ""))
        await front.chat("hello", "s")
        await publisher.publish(stored([3], 2, given(front, "s")))
        await publisher.publish(stored([7], None, given(front, "t")))
        follower = follower_of(front)
        await until(lambda: follower.index.blocks == 1)
        assert evidence(front, "s")[1] == "cached-tokens"


async def test_sources_may_be_configured() -> None:
    async with published() as (_, _, publisher), fake_engine() as engine:
        entry = KvSourceConfig(engine.url, publisher.source.endpoint, topic="kv")
        async with fronted(engine.url, kv_sources=(entry,)) as front:
            await heard(front, engine, publisher)


async def test_many_turns_at_once_leave_nothing_behind() -> None:
    async with watched() as (front, _):
        texts = [f"{number} " + words(300) for number in range(30)]
        await asyncio.gather(*(front.chat(text, f"s{number}") for number, text in enumerate(texts)))
        await until(lambda: all(evidence(front, f"s{n}")[1] == "kv-events" for n in range(30)))
        assert front.gateway._watch is not None
        assert len(front.gateway._watch._whose) == 0
