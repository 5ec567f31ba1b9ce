"""Who a request belongs to, from the wire to the core's books: ids, prompts, parallel and side turns, endings."""

import asyncio
from typing import Any

import httpx
import pytest
from aiohttp import web
from fake_engine import Asked, fake_engine, says, status, usage
from gateway_kit import Front, emulated, fronted, until, words

from tao.core.commands import CloseSession, Closing, DispatchTurn, Reason
from tao.core.events import TurnArrived, TurnKind
from tao.gateway.config import IdentityConfig

SYSTEM = {"role": "system", "content": "You fix bugs in this repository. " * 20}
TOOLS = [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


async def ask(front: Front, *messages: dict[str, Any], **more: Any) -> httpx.Response:
    answer = await front.chat(messages=list(messages), **more)
    assert answer.status_code == 200
    return answer


def session_of(answer: httpx.Response) -> str:
    return str(answer.headers["x-tao-session"])


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_ids_where_one_is_a_prefix_of_the_other_stay_apart() -> None:
    async with fake_engine(default=says("ok", counts=usage(500, 10))) as engine, fronted(engine.url) as front:
        engine.then(says("ok", counts=usage(300, 10)))
        for name in ("run-1", "run-11", "run-1/1", "run"):
            await front.chat(session=name)
        await front.chat(session="run-1")
        sessions = await front.sessions()
        assert len(sessions) == 4
        assert sessions["public/run-1"]["turns_finished"] == 2
        assert sessions["public/run-11"]["turns_finished"] == 1
        released = await front.http.post("/programs/release", json={"program_id": "run-1"})
        assert released.json()["released"] is True
        assert "public/run-11" in await front.sessions()
        assert "public/run-1" not in await front.sessions()


async def test_the_same_id_under_another_key_is_another_session() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for key in ("one", "two", "two"):
            await front.chat(session="s", headers={"authorization": f"Bearer {key}"})
        sessions = await front.sessions()
        assert sorted(session["turns_finished"] for session in sessions.values()) == [1, 2]
        assert len({session["tenant"] for session in sessions.values()}) == 2
        several = await front.http.get("/explain/s")
        assert several.status_code == 409
        assert sorted(several.json()["sessions"]) == sorted(sessions)


WAYS: tuple[tuple[dict[str, str], dict[str, Any]], ...] = (
    ({"x-claude-code-session-id": "s"}, {}),
    ({"thread-id": "s", "session-id": "other"}, {}),
    ({"session_id": "s"}, {}),
    ({"x-opencode-session": "s"}, {}),
    ({"x-session-affinity": "s", "x-session-id": "s"}, {}),
    ({"x-litellm-session-id": "s"}, {"prompt_cache_key": "parent"}),
    ({"x-dynamo-session-id": "s"}, {}),
    ({"x-smg-routing-key": "s"}, {}),
    ({}, {"program_id": "s"}),
    ({}, {"extra_body": {"program_id": "s"}}),
    ({}, {"session_id": "s"}),
    ({}, {"metadata": {"user_id": "user_0_account_1_session_sssssssss"}}),
    ({"x-session-id": "weaker"}, {"vllm_xargs": {"agentic_context": {"program_id": "s"}}}),
)


async def test_every_way_to_tell_an_id() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for headers, body in WAYS:
            answers = [await front.chat(f"turn {turn}", headers=headers, **body) for turn in range(2)]
            assert {session_of(answer).strip("s") for answer in answers} == {"public/"}, (headers, body)
            (session,) = (await front.sessions()).values()
            assert session["turns_finished"] == 2, (headers, body)
            await front.http.post("/close_session", json={"session_id": session["id"].partition("/")[2]})


async def test_contradicting_ids_are_refused_when_strict() -> None:
    async with fake_engine() as engine, fronted(engine.url, identity=IdentityConfig(strict=True)) as front:
        answer = await front.chat(session="one", program_id="two")
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "session_id_conflict"
        assert "x-session-id=one differs from program_id=two" in answer.json()["error"]["message"]
        assert engine.asked == []


async def test_a_sub_agent_is_a_session_of_its_own_with_a_parent() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(headers={"x-claude-code-session-id": "s"})
        await front.chat(headers={"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a1"})
        sessions = await front.sessions()
        assert sessions["public/s:a1"]["parent"] == "public/s"
        assert sessions["public/s"]["parent"] is None


# --- without an id ----------------------------------------------------------------------------------------------------


async def test_conversations_without_an_id_are_recognised_as_long_as_they_extend() -> None:
    async with emulated() as replica, fronted(replica.url) as front:
        messages = [SYSTEM, said("user", "fix issue one")]
        seen = set()
        for turn in range(4):
            answer = await ask(front, *messages)
            seen.add(session_of(answer))
            messages += [answer.json()["choices"][0]["message"], said("user", f"go on {turn}")]
        assert len(seen) == 1
        (session,) = (await front.sessions()).values()
        assert session["turns_finished"] == 4
        assert session["footprint_tokens"] > 100


async def test_conversations_without_an_id_stay_apart() -> None:
    """The same beginning, also the very same one, is no reason to take two agents for one."""
    async with fake_engine() as engine, fronted(engine.url) as front:
        first = [SYSTEM, said("user", "fix issue one")]
        one = session_of(await ask(front, *first))
        two = session_of(await ask(front, *first))
        three = session_of(await ask(front, SYSTEM, said("user", "fix issue two")))
        assert len({one, two, three}) == 3
        reply_one, reply_two = (
            said("assistant", "I look at A. " * 20),
            said("assistant", "I look at B. " * 20),
        )
        go_on = said("user", "go on")
        grown = session_of(await ask(front, *first, reply_one, go_on))
        other = session_of(await ask(front, *first, reply_two, go_on))
        assert {grown, other} == {one, two}
        again = session_of(
            await ask(front, *first, reply_one, go_on, said("assistant", "found " * 40), go_on)
        )
        assert again == grown
        assert len(await front.sessions()) == 3


async def test_a_first_request_that_failed_and_is_sent_again_opens_no_second_session() -> None:
    """Also by a client that does not say that it tries again."""
    async with fake_engine() as engine, fronted(engine.url) as front:
        engine.then(status(500), status(429), says("ok", counts=usage(300, 20)))
        first = [SYSTEM, said("user", "fix issue one")]
        answers = [await front.chat(messages=first) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [500, 429, 200]
        seen = [session_of(answer) for answer in answers]
        assert len(set(seen)) == 1
        (session,) = (await front.sessions()).values()
        assert session["turns_finished"] == 1
        assert session_of(await ask(front, *first)) != seen[0], "this one had its answer"


async def test_what_cannot_be_read_is_a_session_of_one_turn() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        headers = {"content-encoding": "x-odd", "content-type": "application/json"}
        for _ in range(3):
            answer = await front.http.post("/v1/chat/completions", content=b"\x8b\x01", headers=headers)
            assert answer.status_code == 200
        assert len({event.session for event in front.events(TurnArrived)}) == 3
        assert await front.sessions() == {}
        assert [c.cause for c in front.commands(CloseSession)] == [Closing.ENDED] * 3
        assert front.reserved_tokens(engine.url) == 0
        assert len(front.gateway._turns._sessions) == 0


# --- several turns at once --------------------------------------------------------------------------------------------


async def test_two_parallel_turns_are_both_accounted_and_both_released() -> None:
    gate = asyncio.Event()
    counts = usage(1100, 10)
    async with (
        fake_engine(default=says("a b", gate=gate, counts=counts)) as engine,
        fronted(engine.url) as front,
    ):
        one = front.chatting(words(1000), "s", stream=True)
        await until(lambda: engine.now == 1)
        alone = front.reserved_tokens(engine.url)
        two = front.chatting(words(1000), "s", stream=True)
        await until(lambda: engine.now == 2)
        assert front.reserved_tokens(engine.url) > alone + 900
        assert (await front.sessions())["public/s"]["turns"] == ["t1", "t2"]
        gate.set()
        await asyncio.gather(one, two)
        assert (await front.sessions())["public/s"]["phase"] == "acting"
        assert front.reserved_tokens(engine.url) == 1110 + 512
        session = front.session("s")
        assert session is not None
        front.end(session)
        assert front.reserved_tokens(engine.url) == 0


async def test_a_side_turn_leaves_the_main_line_as_it_was() -> None:
    """OpenCode asks for a title under the session's own id."""
    async with emulated() as replica, fronted(replica.url) as front:
        for turn in range(2):
            await ask(front, SYSTEM, said("user", words(500) + "x" * turn), session="s", tools=TOOLS)
        before = (await front.sessions())["public/s"]
        title = await ask(front, said("system", "Write a title."), said("user", "fix issue one"), session="s")
        assert session_of(title) == "public/s"
        assert title.headers["x-tao-decision"].endswith("reason=side")
        assert front.events(TurnArrived)[-1].kind is TurnKind.SIDE
        after = (await front.sessions())["public/s"]
        for fact in ("footprint_tokens", "phase", "home", "turns_finished", "acting_since"):
            assert after[fact] == before[fact], fact
        (seen,), (still,) = before["evidence"].values(), after["evidence"].values()
        assert still["tokens"] == seen["tokens"]
        assert (await front.state())["side_turns"] == []


async def test_a_side_turn_is_booked_while_it_runs() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("ok", counts=usage(600, 10))) as engine, fronted(engine.url) as front:
        await ask(front, SYSTEM, said("user", words(500)), session="s", tools=TOOLS)
        before = front.reserved_tokens(engine.url)
        engine.then(says("a title", gate=gate))
        headers = {"x-claude-code-request-class": "auxiliary"}
        running = front.chatting(words(300), "s", headers=headers)
        await until(lambda: engine.now == 1)
        assert front.reserved_tokens(engine.url) > before + 300
        assert len((await front.state())["side_turns"]) == 1
        gate.set()
        await running
        assert front.reserved_tokens(engine.url) == before


async def test_after_a_compaction_the_credit_is_void() -> None:
    async with (
        fake_engine(default=says("ok", counts=usage(5000, 10))) as engine,
        fronted(engine.url) as front,
    ):
        gate = asyncio.Event()
        await ask(front, SYSTEM, said("user", words(5000)), session="s")
        session = front.session("s")
        assert session is not None
        assert session.evidence
        engine.then(says("a b", gate=gate, counts=usage(400, 10)))
        headers = {"x-claude-code-context-compacted": "1"}
        running = front.chatting(words(300), "s", headers=headers, stream=True)
        await until(lambda: engine.now == 1)
        assert session.evidence == {}
        assert session.footprint_tokens < 500
        gate.set()
        await running
        assert session.footprint_tokens == 410


# --- stored responses -------------------------------------------------------------------------------------------------


async def test_a_continued_response_goes_to_the_replica_that_made_it() -> None:
    async with emulated(seed=1) as one, emulated(seed=2) as two, fronted(one.url, two.url) as front:
        made: list[tuple[str, str]] = []
        for number in range(6):
            body = {"model": "m", "input": f"{number} " + words(300), "max_output_tokens": 8}
            answer = await front.http.post("/v1/responses", json=body)
            made.append((answer.json()["id"], answer.headers["x-tao-decision"].partition(";")[0]))
        assert len({replica for _, replica in made}) == 2, "otherwise this test shows nothing"
        sessions = len(await front.sessions())
        for response_id, replica in made:
            body = {
                "model": "m",
                "input": "go on",
                "previous_response_id": response_id,
                "max_output_tokens": 8,
            }
            answer = await front.http.post("/v1/responses", json=body)
            assert answer.headers["x-tao-decision"].startswith(replica)
        assert len(await front.sessions()) == sessions, "each continues its own session"


async def test_a_continued_response_counts_what_is_stored() -> None:
    async def respond(asked: Asked) -> web.StreamResponse:
        document = {
            "id": f"resp_{len(engine.asked)}",
            "object": "response",
            "status": "completed",
            "output": [],
            "usage": {"input_tokens": 2000 * len(engine.asked), "output_tokens": 10},
        }
        return web.json_response(document)

    async with fake_engine(default=respond) as engine, fronted(engine.url) as front:
        body = {"model": "m", "input": words(2000)}
        await front.http.post("/v1/responses", json=body)
        ratio = front.gateway._turns._tokens.bytes_per_token("public/~1")
        body = {"model": "m", "input": words(100), "previous_response_id": "resp_1"}
        await front.http.post("/v1/responses", json=body)
        first, second = front.events(TurnArrived)
        assert first.session == second.session
        assert second.prompt_tokens == pytest.approx(2010 + 100, rel=0.05)
        assert front.gateway._turns._tokens.bytes_per_token("public/~1") == ratio


async def test_a_stored_response_is_looked_up_where_it_is() -> None:
    async def respond(asked: Asked) -> web.StreamResponse:
        name = f"resp_{asked.http.url.port}"
        if asked.http.method == "POST":
            return web.json_response({"id": name, "object": "response", "status": "completed", "output": []})
        return web.json_response({"id": name}, status=200 if name in asked.path else 404)

    async with (
        fake_engine(default=respond) as one,
        fake_engine(default=respond) as two,
        fronted(one.url, two.url) as front,
    ):
        for number in range(4):
            await front.http.post("/v1/responses", json={"model": "m", "input": f"{number} {words(200)}"})
        assert one.asked, "otherwise this test shows nothing"
        assert two.asked, "otherwise this test shows nothing"
        for _ in range(3):
            for engine in (one, two):
                name = f"resp_{engine.port}"
                assert (await front.http.get(f"/v1/responses/{name}")).json() == {"id": name}
                assert (await front.http.delete(f"/v1/responses/{name}")).status_code == 200
                assert (await front.http.get(f"/v1/responses/{name}/input_items")).status_code == 200


async def test_a_pin_that_decides_is_named() -> None:
    async with emulated(seed=1) as one, emulated(seed=2) as two, fronted(one.url, two.url) as front:
        body = {"model": "m", "input": "hello", "max_output_tokens": 8}
        first = await front.http.post("/v1/responses", json=body)
        made_by = first.headers["x-tao-decision"].partition(";")[0].removeprefix("replica=")
        session = front.session("~1")
        assert session is not None
        front.end(session)  # nothing but the response's id leads back
        await front.chat(words(3000), session="large")
        body["previous_response_id"] = first.json()["id"]
        again = await front.http.post("/v1/responses", json=body)
        assert again.headers["x-tao-decision"].startswith(f"replica={made_by};")
        assert front.commands(DispatchTurn)[-1].reason in {Reason.PINNED, Reason.ROOM}


# --- the end of a session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/programs/release", {"program_id": "s"}),
        ("/v1/programs/release", {"session_id": "s"}),
        ("/finish_session?session_id=s", None),
        ("/close_session", {"session_id": "s"}),
    ],
)
async def test_every_way_to_release_a_session(path: str, body: dict[str, str] | None) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(session="s")
        assert front.reserved_tokens(engine.url) > 0
        released = await front.http.post(path, json=body)
        assert (released.status_code, released.json()) == (200, {"released": True, "session_id": "public/s"})
        assert front.reserved_tokens(engine.url) == 0
        assert await front.sessions() == {}
        again = await front.http.post(path, json=body)
        assert again.json()["released"] is False
        assert len(engine.asked) == 1, "a release is no business of the engine"


async def test_a_release_that_names_no_session_is_told_so() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        answer = await front.http.post("/programs/release", json={})
        assert answer.status_code == 400
        assert "needs 'program_id'" in answer.json()["error"]["message"]


async def test_a_release_with_another_key_releases_nothing() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(session="s", headers={"authorization": "Bearer one"})
        other = {"authorization": "Bearer two"}
        answer = await front.http.post("/close_session", json={"session_id": "s"}, headers=other)
        assert answer.json()["released"] is False
        assert len(await front.sessions()) == 1


@pytest.mark.parametrize("header", ["x-session-final", "x-dynamo-session-final"])
async def test_the_final_header_ends_the_session_with_its_turn(header: str) -> None:
    gate = asyncio.Event()
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat(session="s")
        engine.then(says("a b", gate=gate))
        last = front.chatting(session="s", stream=True, headers={header: "true"})
        await until(lambda: engine.now == 1)
        assert front.session("s") is not None
        gate.set()
        assert (await last).status_code == 200
        await until(lambda: front.session("s") is None)
        assert front.reserved_tokens(engine.url) == 0
        assert front.commands(CloseSession)[-1].cause is Closing.ENDED


async def test_a_session_released_while_its_turn_runs_ends_after_it() -> None:
    gate = asyncio.Event()
    async with fake_engine(default=says("a b", gate=gate)) as engine, fronted(engine.url) as front:
        running = front.chatting(session="s", stream=True)
        await until(lambda: engine.now == 1)
        await front.http.post("/close_session", json={"session_id": "s"})
        assert front.reserved_tokens(engine.url) > 0
        gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n")
        assert await front.sessions() == {}
        assert front.reserved_tokens(engine.url) == 0
