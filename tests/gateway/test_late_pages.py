"""Replicas whose metrics or models page is late or breaks off: alive while their health page says so, known as before."""

import asyncio

import pytest
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import fronted, until, words

from tao.core.events import CapacityChanged, ModelsChanged, ReplicaJoined, ReplicaLost
from tao.gateway.member import Member
from tao.gateway.probe import HttpProbe

PAGES = ("/metrics", "/v1/models")


def hinder(engine: FakeEngine, path: str, how: str) -> None:
    if how == "late":
        engine.late[path] = 60.0
    elif how == "cut":
        engine.cut.add(path)
    else:
        engine.pages[path] = (int(how), b"")


def help_again(engine: FakeEngine) -> None:
    engine.late.clear()
    engine.cut.clear()
    engine.pages.clear()


async def looked_again(member: Member) -> None:
    """More looks have ended since than a replica may miss."""
    for _ in range(3):
        before = member.sighting
        await until(lambda before=before: member.sighting is not before)  # type: ignore[misc]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("how", ["late", "cut", "503"])
async def test_a_replica_whose_health_page_is_good_stays_as_it_is_known(path: str, how: str) -> None:
    behaviour = says("ok", counts=usage(500, 10))
    async with (
        fake_engine(default=behaviour, capacity_tokens=8192, served_tokens=1000) as engine,
        fronted(engine.url) as front,
    ):
        await front.chat(words(500), "s")
        session, (member,) = front.session("s"), front.gateway.fleet
        assert session is not None
        hinder(engine, path, how)
        await until(lambda: any(path in told for told in member.sighting.problems))
        await looked_again(member)
        (told,) = (await front.state())["engines"]
        assert told["up"]
        why = "answers 503" if how == "503" else "did not come"
        assert any(f"{path} {why}" in problem for problem in told["problems"])
        assert session.evidence
        assert (await front.state())["replicas"][0]["capacity_tokens"] == 8192
        assert told["capacity_tokens"] == (None if path == "/metrics" else 8192), "what this look has shown"
        assert told["models"] == ["m"]
        assert (await front.chat(session="t", model="another")).status_code == 404, "it serves no other model"
        assert (await front.chat(session="t")).status_code == 200
        help_again(engine)
        await until(lambda: not member.sighting.problems)
        assert not any(map(front.events, (ReplicaLost, CapacityChanged, ModelsChanged)))


async def test_a_restart_behind_pages_that_did_not_come_is_seen_when_they_come() -> None:
    async with (
        fake_engine(served_tokens=1000) as engine,
        fronted(engine.url) as front,
    ):
        (member,) = front.gateway.fleet
        await until(lambda: member.served.prompt == {"0": 1000.0})
        hinder(engine, "/metrics", "cut")
        await until(lambda: member.sighting.missing)
        engine.served_tokens, engine.models = 10, ("another",)
        engine.cut = {"/v1/models"}
        await until(lambda: front.events(ReplicaLost))
        await looked_again(member)
        assert not member.up, "nobody knows what it serves by now"
        help_again(engine)
        await until(lambda: len(front.events(ReplicaJoined)) == 2)
        assert front.events(ReplicaJoined)[1].models == ("another",)


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("/metrics", "late"),
        ("/metrics", "cut"),
        ("/v1/models", "cut"),
        ("/metrics", "500"),
        ("/v1/models", "429"),
    ],
)
async def test_a_replica_that_comes_has_to_say_first_what_it_is(path: str, how: str) -> None:
    async with fake_engine(capacity_tokens=8192) as engine:
        hinder(engine, path, how)
        async with fronted(engine.url) as front:
            (member,) = front.gateway.fleet
            await looked_again(member)
            assert not front.events(ReplicaJoined)
            why = f"answers {how}" if how.isdecimal() else "did not come"
            assert f"{path} {why}" in (await front.http.get("/readyz")).text
            assert not member.may_serve_any
            help_again(engine)
            await until(lambda: front.events(ReplicaJoined))
            (joined,) = front.events(ReplicaJoined)
            assert (joined.capacity_tokens, joined.models) == (8192, ("m",))


@pytest.mark.parametrize("path", PAGES)
async def test_a_late_health_page_is_excused_by_no_page_that_is_late_too(path: str) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        hinder(engine, path, "late")
        engine.health_delay_seconds = 60.0
        await until(lambda: front.events(ReplicaLost))


async def test_one_that_stops_listening_behind_its_health_page_is_dead_at_once() -> None:
    async def healthy_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        server.close()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(healthy_once, "127.0.0.1", 0)
    probe = HttpProbe()
    try:
        seen = await probe.look(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 2.0)
        assert (seen.healthy, seen.refused) == (False, True)
    finally:
        await probe.close()
