"""Replicas that come and go while the gateway runs: by the admin API, and by sources of whole sets."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import Front, InlineSolver, fronted, until, words

from tao.core import Scheduler
from tao.core.commands import Interruption, InterruptSession
from tao.core.events import ReplicaDraining, ReplicaJoined, ReplicaLost, ReplicaRemoved
from tao.gateway.clock import ModelClock
from tao.gateway.config import GatewayConfig, Health, SchedulerConfig
from tao.gateway.driver import Driver
from tao.gateway.fleet import Fleet
from tao.gateway.member import Sighting
from tao.gateway.planner import Planner
from tao.gateway.sources import Discovery, Wanted
from tao.policies import make_policy

TOKEN = "a-token-of-some-length"
BEARER = {"authorization": f"Bearer {TOKEN}"}
NOWHERE = "http://127.0.0.1:1"


class Scripted:
    """A source of replicas that tells what a test puts into it."""

    name = "scripted"
    problem: str | None = None

    def __init__(self, *first: str) -> None:
        self.sets: asyncio.Queue[tuple[Wanted, ...]] = asyncio.Queue()
        self.tell(*first)

    def tell(self, *urls: str) -> None:
        """A mark `!` at the end: draining."""
        self.sets.put_nowait(tuple(Wanted(url.rstrip("!"), url.endswith("!")) for url in urls))

    async def desired(self) -> AsyncIterator[tuple[Wanted, ...]]:
        while True:
            yield await self.sets.get()


async def change(front: Front, what: str, **body: Any) -> httpx.Response:
    """One change by the admin API; `what` is nothing (add), drain or remove."""
    path = "/v1/tao/replicas" + (f"/{what}" if what else "")
    return await front.http.post(path, json=body, headers=BEARER)


async def listed(front: Front) -> dict[str, dict[str, Any]]:
    answer = await front.http.get("/v1/tao/replicas")
    return {replica["id"]: replica for replica in answer.json()["replicas"]}


# --- who may --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/drain", "/remove"])
async def test_without_a_token_in_the_configuration_changes_are_off(path: str) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        answer = await front.http.post(f"/v1/tao/replicas{path}", json={}, headers=BEARER)
        assert answer.status_code == 403
        assert "TAO_ADMIN_TOKEN" in answer.json()["error"]["message"]
        assert list(await listed(front)) == [engine.url[7:]]


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9", TOKEN]
)
async def test_a_change_needs_the_token(given: str | None) -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        headers = [] if given is None else [(b"authorization", given.encode("latin-1"))]
        answer = await front.http.post("/v1/tao/replicas", json={"url": NOWHERE}, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
        assert len(await listed(front)) == 1


@pytest.mark.parametrize(
    ("path", "body", "code", "says_what"),
    [
        ("", b"{", 400, "malformed_request"),
        ("", b"{}", 400, "url"),
        ("", b'{"url": 1}', 400, "url"),
        ("", b'{"url": "http://a:1", "weight": 3}', 400, "weight"),
        ("", b'{"url": "http://a:1/v1"}', 400, "ends in /v1"),
        ("", b'{"url": "ftp://a"}', 400, "not an http(s) URL"),
        ("", b'{"url": "http://a:1", "slots": 0}', 400, "Expected `int` >= 1 - at `$.slots`"),
        ("", b'{"url": "http://a:1", "slots": "engine"}', 400, "got `str` - at `$.slots`"),
        ("", b'{"url": "http://a:1", "slots": 2.0}', 400, "got `float` - at `$.slots`"),
        ("/drain", b'{"replica": "a:1"}', 404, "there are: "),
        ("/remove", b'{"replica": "http://a:1"}', 404, "no replica is called"),
        ("/remove", b'{"replica": "http://["}', 400, "write it like"),
        ("/drain", b"[]", 400, "malformed_request"),
        ("", b'{"url": "http://a:1\xff"}', 400, "malformed_request"),
        ("/remove", b'{"replica": "\xff"}', 400, "malformed_request"),
    ],
)
async def test_what_is_wrong_with_a_change_is_named(
    path: str, body: bytes, code: int, says_what: str
) -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        answer = await front.http.post(f"/v1/tao/replicas{path}", content=body, headers=BEARER)
        assert answer.status_code == code
        assert says_what in answer.text
        wrong_method = await front.http.put("/v1/tao/replicas", headers=BEARER)
        assert wrong_method.status_code == 405


# --- by the admin API ---------------------------------------------------------------------------------------------


async def test_a_gateway_may_start_with_nobody_and_be_given_replicas() -> None:
    async with fake_engine(default=says("here")) as engine, fronted(admin_token=TOKEN) as front:
        assert (await front.http.get("/readyz")).json()["why"] == "no replica is up"
        held = front.chatting(session="s")
        await until(lambda: front.held() == 1)
        added = await change(front, "", url=engine.url)
        assert (added.status_code, added.json()["replica"]) == (200, engine.url[7:])
        assert (await held).json()["choices"][0]["message"]["content"] == "here"
        assert (await change(front, "", url=engine.url + "/")).status_code == 200, "once more is no error"
        assert len(await listed(front)) == 1


async def test_the_log_has_each_change_with_its_replica(logs: list[dict[str, Any]]) -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        assert (await change(front, "drain", replica=engine.url[7:])).status_code == 200
    (told,) = (entry for entry in logs if entry["event"] == "an operator changed something")
    assert told["replica"] == engine.url[7:]
    assert "now" not in told, "the state of the engine is in the answer"


async def test_draining_interrupts_nothing_and_sessions_go_on_elsewhere() -> None:
    gate = asyncio.Event()
    counts = usage(600, 10)
    async with (
        fake_engine(default=says("ok", counts=counts)) as one,
        fake_engine(default=says("ok", counts=counts)) as two,
        fronted(one.url, admin_token=TOKEN) as front,
    ):
        await front.chat(words(600), "acts")
        one.then(says("a b", gate=gate, counts=counts))
        running = front.chatting(words(600), "runs", stream=True)
        await until(lambda: one.now == 1)
        await change(front, "", url=two.url)
        await until(lambda: len(front.events(ReplicaJoined)) == 2)
        assert (await change(front, "drain", replica=one.url[7:])).json()["now"]["draining"] is True

        (interrupted,) = front.commands(InterruptSession)
        assert (interrupted.session, interrupted.reason) == ("public/acts", Interruption.DRAINING)
        for session in ("acts", "new"):
            answer = await front.chat(words(600), session)
            assert answer.headers["x-tao-decision"].startswith(f"replica={two.url[7:]};")
        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n"), "what ran has run to its end"
        assert (
            (await front.chat(words(700), "runs"))
            .headers["x-tao-decision"]
            .startswith(f"replica={two.url[7:]};")
        )

        asked = len(one.asked)
        await change(front, "", url=one.url)
        await until(lambda: len(front.events(ReplicaJoined)) == 3)
        answers = [await front.chat(words(600), f"later {number}") for number in range(4)]
        assert len(one.asked) > asked, [answer.headers["x-tao-decision"] for answer in answers]


async def test_a_replica_is_removed_when_its_turns_have_ended() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(default=says("a b", gate=gate)) as one,
        fronted(one.url, admin_token=TOKEN) as front,
    ):
        running = front.chatting(session="s", stream=True)
        await until(lambda: one.now == 1)
        assert (await change(front, "remove", replica=one.url)).json()["now"]["leaving"] is True
        assert list(await listed(front)) == [one.url[7:]]
        assert not front.events(ReplicaRemoved)
        gate.set()
        assert (await running).status_code == 200
        await until(lambda: front.events(ReplicaRemoved))
        assert await listed(front) == {}
        state = await front.state()
        assert (state["replicas"], state["engines"]) == ([], [])
        page = (await front.http.get("/metrics")).text
        assert one.url[7:] not in page, "no row has the name of what is gone"


async def test_a_removal_does_not_wait_for_ever() -> None:
    gate = asyncio.Event()
    bound = Discovery(removal_seconds_max=0.05)
    async with (
        fake_engine(default=says("a b", gate=gate)) as one,
        fronted(one.url, admin_token=TOKEN, discovery=bound) as front,
    ):
        running = front.chatting(session="s", stream=True)
        await until(lambda: one.now == 1)
        await change(front, "remove", replica=one.url)
        await until(lambda: front.events(ReplicaRemoved))
        assert await listed(front) == {}
        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n"), "its turn was not cut"
        await until(lambda: not front.turns())
        assert (await front.state())["replicas"] == []


async def test_a_removed_replica_can_be_added_again_also_while_it_leaves() -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(default=says("a b", gate=gate)) as one,
        fronted(one.url, admin_token=TOKEN) as front,
    ):
        running = front.chatting(session="s", stream=True)
        await until(lambda: one.now == 1)
        await change(front, "remove", replica=one.url)
        await change(front, "", url=one.url)
        gate.set()
        await running
        one.default = says("ok")
        assert (await front.chat(session="t")).status_code == 200
        await change(front, "remove", replica=one.url)
        await until(lambda: front.events(ReplicaRemoved))
        await change(front, "", url=one.url)
        assert (await front.chat(session="u")).status_code == 200


@pytest.mark.parametrize("by_operator", [True, False])
async def test_draining_keeps_a_replica_that_was_about_to_leave_whoever_named_it(by_operator: bool) -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as one:
        source = Scripted(*[] if by_operator else [one.url])
        async with fronted(admin_token=TOKEN, sources=[source]) as front:
            if by_operator:
                await change(front, "", url=one.url, slots=3)
            await until(lambda: front.events(ReplicaJoined))
            running = front.chatting(session="s")
            await until(lambda: one.now == 1)
            await change(front, "remove", replica=one.url) if by_operator else source.tell()
            await until(lambda: next(iter(front.gateway.fleet)).leave_at is not None)
            now = (await change(front, "drain", replica=one.url)).json()["now"]
            assert (now["draining"], now["leaving"], now["own_slots"]) == (
                True,
                False,
                3 if by_operator else None,
            )
            orders = (await front.http.get("/v1/tao/replicas")).json()["sources"][-1]
            assert (orders["replicas"], orders["orders"]) == ([one.url[7:]], {one.url[7:]: "drain"})
            gate.set()
            await running
            await front.gateway.fleet.look_once()
            assert (await listed(front))[one.url[7:]]["draining"], "it has no turns, and is there still"
            await change(front, "remove", replica=one.url)
            await until(lambda: front.events(ReplicaRemoved))


async def test_with_no_replica_a_turn_is_refused_at_the_bound() -> None:
    bounds = SchedulerConfig(no_replica_seconds_max=0.2)
    async with fake_engine() as one, fronted(one.url, admin_token=TOKEN, scheduler=bounds) as front:
        await change(front, "remove", replica=one.url)
        await until(lambda: front.events(ReplicaRemoved))
        answer = await front.chat(session="s")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


async def test_a_replica_that_dies_while_it_drains_does_not_come_back_by_itself() -> None:
    async with (
        fake_engine() as one,
        fake_engine() as two,
        fronted(one.url, two.url, admin_token=TOKEN) as front,
    ):
        await change(front, "drain", replica=one.url)
        one.healthy = False
        await until(lambda: not next(iter(front.gateway.fleet)).up)
        one.healthy = True
        await until(lambda: next(iter(front.gateway.fleet)).up)
        assert len(front.events(ReplicaJoined)) == 2
        for number in range(3):
            assert (
                f"replica={two.url[7:]};"
                in (await front.chat(session=f"s{number}")).headers["x-tao-decision"]
            )
        models = await front.http.get("/v1/models")
        assert models.status_code == 200


async def test_trainers_register_engines_as_at_other_routers() -> None:
    async with fake_engine() as one, fake_engine() as two, fronted(one.url, admin_token=TOKEN) as front:
        added = await front.http.post("/add_worker", params={"url": two.url}, headers=BEARER)
        assert added.status_code == 200
        assert (await front.http.get("/list_workers")).json() == {"urls": [one.url, two.url]}
        await front.http.post("/remove_worker", params={"url": one.url}, headers=BEARER)
        await until(lambda: front.events(ReplicaRemoved))
        assert (await front.http.get("/list_workers")).json() == {"urls": [two.url]}
        assert (await front.http.post("/add_worker", params={"url": two.url})).status_code == 401
        for query in ("", "?url=", "?url=nonsense", f"?url={one.url}&url={two.url}"):
            assert (await front.http.post(f"/add_worker{query}", headers=BEARER)).status_code == 400


# --- by sources -----------------------------------------------------------------------------------------------------


async def test_a_source_of_whole_sets_is_followed() -> None:
    async with fake_engine() as one, fake_engine() as two:
        source = Scripted(one.url)
        async with fronted(sources=[source]) as front:
            assert (await front.http.get("/readyz")).status_code == 200, "its first set was waited for"
            source.tell(two.url, one.url + "!")
            await until(lambda: len(front.events(ReplicaJoined)) == 2)
            await until(lambda: front.events(ReplicaDraining))
            assert f"replica={two.url[7:]};" in (await front.chat(session="s")).headers["x-tao-decision"]
            source.tell(two.url)
            await until(lambda: [event.replica for event in front.events(ReplicaRemoved)] == [one.url[7:]])
            source.tell()
            await until(lambda: len(front.events(ReplicaRemoved)) == 2)
            source.tell(one.url)
            await until(lambda: len(front.events(ReplicaJoined)) == 3)
            assert (await front.chat(session="s")).status_code == 200


async def test_a_hundred_replicas_that_come_and_go_leave_nothing_behind() -> None:
    async with fake_engine() as one:  # under many paths, each a replica of its own
        source = Scripted()
        async with fronted(sources=[source], policy="round-robin") as front:
            gone = 0
            for batch in range(4):
                source.tell(*[f"{one.url}/{batch}/{number}" for number in range(25)])
                await until(lambda: len(front.gateway.fleet.up()) == 25)
                await asyncio.gather(*(front.chat(session=f"s{number}") for number in range(25)))
                gone += 25
                source.tell()
                await until(lambda due=gone: len(front.events(ReplicaRemoved)) == due)  # type: ignore[misc]
            assert kept_of_replicas(front) == {}


def kept_of_replicas(front: Front) -> dict[str, object]:
    """What is remembered by replica or URL, where it is anything."""
    gateway = front.gateway
    state = gateway.driver.scheduler._context.state
    holders = (gateway._upstream, gateway.fleet._probe._health, gateway.fleet.reconciliation, state.ledger)  # type: ignore[attr-defined]
    by_replica = {"_origins", "_asked", "_good", "_rows", "_excess_since", "_quiet_until"}
    by_replica |= {"_on_replica", "_holders", "_reserved_tokens"}
    kept = {name: getattr(holder, name) for holder in holders for name in by_replica if hasattr(holder, name)}
    assert set(kept) == by_replica, "one has another name now"
    return {name: value for name, value in (kept | {"replicas": state.replicas}).items() if value}


async def test_what_two_sources_name_stays_until_both_have_dropped_it() -> None:
    async with fake_engine() as one:
        source = Scripted(one.url + "!")
        async with fronted(one.url, sources=[source]) as front:
            assert not front.events(ReplicaDraining), "the configuration wants it"
            source.tell()
            sources = (await front.http.get("/v1/tao/replicas")).json()["sources"]
            assert [each["source"] for each in sources] == ["configuration", "scripted", "operator"]
            assert (await front.chat(session="s")).status_code == 200
            assert not front.events(ReplicaRemoved)


async def test_an_operators_word_counts_more_than_the_sources() -> None:
    async with fake_engine() as one, fake_engine() as two:
        source = Scripted(one.url, two.url)
        async with fronted(sources=[source], admin_token=TOKEN) as front:
            await change(front, "remove", replica=one.url)
            await until(lambda: front.events(ReplicaRemoved))
            source.tell(one.url, two.url, NOWHERE)
            await until(lambda: any(member.url == NOWHERE for member in front.gateway.fleet))
            assert one.url[7:] not in await listed(front)
            await change(front, "", url=one.url)
            assert one.url[7:] in await listed(front)
            await until(lambda: len(front.events(ReplicaJoined)) == 3)
            source.tell(two.url)
            # It was no replica of the operator's own: it goes with its source.
            await until(lambda: len(front.events(ReplicaRemoved)) >= 2)


async def test_a_source_that_is_silent_at_the_start_does_not_keep_the_gateway_from_it() -> None:
    source = Scripted()
    source.sets.get_nowait()
    async with fake_engine() as one, fronted(one.url, sources=[source]) as front:
        assert (await front.chat(session="s")).status_code == 200


# --- another URL of the same name ------------------------------------------------------------------------------------

RARE_LOOKS = Health(period_seconds=3600.0, timeout_seconds=1.0, failures_max=2)


async def test_another_scheme_is_another_place_that_is_looked_at_at_once() -> None:
    async with fake_engine(default=says("ok", counts=usage(100, 10))) as one:
        secure = one.url.replace("http:", "https:")  # it does not speak TLS
        source = Scripted(secure)
        async with fronted(sources=[source], health=RARE_LOOKS) as front:
            assert (await front.http.get("/readyz")).status_code == 503
            source.tell(one.url)
            await until(lambda: front.events(ReplicaJoined))
            assert (await front.chat(session="s")).status_code == 200
            source.tell(secure)
            await until(lambda: front.events(ReplicaLost))
            (lost,) = front.commands(InterruptSession)
            assert (lost.session, lost.reason) == ("public/s", Interruption.REPLICA_LOST)
            (shown,) = (await listed(front)).values()
            assert (shown["url"], shown["up"]) == (secure, False)
            source.tell(one.url)
            await until(lambda: len(front.events(ReplicaJoined)) == 2)
            assert (await front.chat(session="s")).status_code == 200


async def test_an_operator_may_change_the_scheme_of_a_replica_of_its_own() -> None:
    async with fake_engine() as one, fronted(admin_token=TOKEN, health=RARE_LOOKS) as front:
        secure = one.url.replace("http:", "https:")
        assert (await change(front, "", url=secure)).json()["now"]["url"] == secure
        assert (await change(front, "", url=one.url)).json()["now"]["url"] == one.url
        await until(lambda: front.events(ReplicaJoined))


async def test_an_operator_may_change_the_scheme_of_a_replica_that_a_source_names() -> None:
    async with (
        fake_engine() as one,
        fronted(sources=[Scripted(one.url)], admin_token=TOKEN, health=RARE_LOOKS) as front,
    ):
        secure = one.url.replace("http:", "https:")
        for url in (secure, one.url):
            assert (await change(front, "", url=url)).json()["now"]["url"] == url
            assert [shown["url"] for shown in (await listed(front)).values()] == [url]


async def test_readiness_names_who_drains() -> None:
    async with (
        fake_engine() as one,
        fake_engine() as two,
        fronted(one.url, two.url, admin_token=TOKEN) as front,
    ):
        await change(front, "drain", replica=one.url)
        answer = await front.http.get("/readyz")
        assert answer.status_code == 200
        assert answer.json()["replicas"] == {one.url[7:]: "draining", two.url[7:]: True}


async def test_another_spelling_of_the_same_place_changes_nothing() -> None:
    async with fake_engine() as one:
        source = Scripted(one.url)
        async with fronted(sources=[source]) as front:
            source.tell(one.url.replace("http:", "HTTP:") + "/", NOWHERE)
            await until(lambda: any(member.url == NOWHERE for member in front.gateway.fleet))
            assert not front.events(ReplicaLost)
            assert (await listed(front))[one.url[7:]]["url"] == one.url


class Waiting:
    """A `Probe` that finds every replica healthy, once it may answer the question that it is to wait with."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.may_answer = asyncio.Event()
        self.asked: list[str] = []

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting:
        await self._wait("look", base_url)
        return Sighting(True)

    async def slots(self, base_url: str, seen: Sighting, timeout_seconds: float) -> int | None:
        await self._wait("slots", base_url)
        return None

    def forget(self, base_url: str) -> None:
        """Nothing to forget."""

    async def _wait(self, at: str, base_url: str) -> None:
        if at == self.at:
            self.asked.append(base_url)
            await self.may_answer.wait()


@pytest.mark.parametrize("at", ["look", "slots"])
async def test_what_is_said_of_the_url_of_before_does_not_count(at: str) -> None:
    probe = Waiting(at)
    secure = NOWHERE.replace("http:", "https:")
    driver = Driver(Scheduler(make_policy("tao")), ModelClock(), Planner(InlineSolver(), 1.0))
    fleet = Fleet(GatewayConfig(replicas=(NOWHERE,)), driver, probe)
    looking = asyncio.create_task(fleet.look_once())
    await until(lambda: probe.asked == [NOWHERE])
    fleet.add(secure)
    probe.may_answer.set()
    await looking
    assert [each.up for each in fleet] == [False]
    assert not driver.scheduler.view.replicas
    await fleet.look_once()
    assert [(each.url, each.up) for each in fleet] == [(secure, True)]
    await driver.close()


# --- documented -----------------------------------------------------------------------------------------------------


async def test_the_changes_are_documented_where_they_are_served() -> None:
    async with fake_engine() as engine, fronted(engine.url, admin_token=TOKEN) as front:
        document = (await front.http.get("/openapi.json")).json()
        paths = [path for path in document["paths"] if path.startswith("/v1/tao/replicas")]
        assert len(paths) == 3
        for path in paths:
            change_of = document["paths"][path]["post"]
            assert change_of["security"] == [{"admin": []}]
            schema = change_of["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition(
                "/"
            )[2]
            assert document["components"]["schemas"][schema]["additionalProperties"] is False
            assert (await front.http.post(path, json={})).status_code == 401
