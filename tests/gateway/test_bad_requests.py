"""Requests that make no sense: each is refused at once, in the client's dialect, with a message that says what is wrong."""

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fake_engine import fake_engine, status
from gateway_kit import MODEL, emulated, fronted
from watched import Watched

from tao.core.ports import Hold, Place, View
from tao.core.session import Session, Turn
from tao.gateway.config import Limits
from tao.policies import make_policy
from tests.gateway_http.wire_kit import exchange, post

MESSAGES = [{"role": "user", "content": "hello"}]
JSON = {"content-type": "application/json"}
OPENAI = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


NO_OBJECTS = (
    (b"", "the request body is empty; send a JSON object"),
    (b"   ", "the request body is empty; send a JSON object"),
    (b'{"model": "m", "messages": [', "malformed JSON"),
    (b"not json", "malformed JSON"),
    (b'{"model": "\xff"}', "malformed JSON"),
    (b"[1, 2]", "expected a JSON object, got an array"),
    (b'"hello"', "expected a JSON object, got a string"),
    (b"null", "expected a JSON object, got null"),
    (b"[" * 5000 + b"]" * 5000, "JSON"),
)
WRONG_SHAPES: tuple[tuple[str, dict[str, Any], str], ...] = (
    (OPENAI[0], {"model": "m"}, "'messages' must be an array of messages, got nothing"),
    (OPENAI[0], {"model": "m", "messages": "hi"}, "'messages' must be an array of messages, got a string"),
    (OPENAI[0], {"model": "m", "messages": [3]}, "'messages[0]' must be an object, got a number"),
    (OPENAI[0], {"model": 7, "messages": MESSAGES}, "'model' must be a string, got a number"),
    (OPENAI[0], {"messages": MESSAGES, "stream": "yes"}, "'stream' must be true or false, got a string"),
    (OPENAI[1], {"prompt": {"a": 1}}, "'prompt' must be a string or an array, got an object"),
    (OPENAI[2], {"input": 5}, "'input' must be a string or an array, got a number"),
    ("/v1/messages", {"messages": {}}, "'messages' must be an array of messages, got an object"),
)


@pytest.mark.parametrize("path", [*OPENAI, "/v1/messages"])
async def test_what_is_no_json_object(path: str) -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for body, says_what in NO_OBJECTS:
            answer = await front.http.post(path, content=body, headers=JSON)
            assert answer.status_code == 400, body
            assert says_what in error_of(answer)["message"], body
            assert error_of(answer)["type"] == "invalid_request_error", body
            assert answer.json().get("type") == ("error" if path == "/v1/messages" else None), body
        assert engine.asked == []
        assert front.events_of_turns() == []


async def test_a_body_of_the_wrong_shape() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for path, body, says_what in WRONG_SHAPES:
            answer = await front.http.post(path, json=body)
            assert (answer.status_code, error_of(answer)["message"]) == (400, says_what), body
        assert engine.asked == []
        assert front.events_of_turns() == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_an_alias_lets_pass_is_the_engines_to_refuse(path: str, stream: bool) -> None:
    async with emulated() as replica, fronted(replica.url, model_aliases={"*": MODEL}) as front:
        body = {"model": "absent", "max_tokens": 8, "messages": MESSAGES, "stream": stream}
        direct = await front.http.post(replica.url + path, json=body)
        answer = await front.http.post(path, json=body)
        assert answer.status_code == direct.status_code == 404
        assert answer.content == direct.content
        assert "The model `absent` does not exist" in error_of(answer)["message"]
        assert front.reserved_tokens(replica.url) == 0


async def test_bodies_that_the_engine_judges_are_passed_on() -> None:
    """TAO checks only what would mislead it; the rest is the engine's business."""
    async with fake_engine(default=status(422, b'{"odd": true}')) as engine, fronted(engine.url) as front:
        odd = {"messages": MESSAGES, "max_tokens": "many", "tools": "none", "metadata": 3, "temperature": []}
        answer = await front.http.post("/v1/chat/completions", json=odd)
        assert (answer.status_code, answer.content) == (422, b'{"odd": true}')


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings"])
async def test_a_body_above_the_limit(path: str) -> None:
    limits = Limits(body_bytes_max=1000)
    async with fake_engine() as engine, fronted(engine.url, limits=limits) as front:
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 1000}]}
        answer = await front.http.post(path, json=body)
        assert answer.status_code == 413
        assert "exceeds 1000 bytes" in error_of(answer)["message"]
        assert "limits.body_bytes_max" in error_of(answer)["message"]
        assert engine.asked == []


async def test_a_hundred_megabytes_are_refused_and_never_held() -> None:
    piece = b"x" * (1 << 20)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield piece

    async with fake_engine() as engine, fronted(engine.url) as front:
        tracemalloc.start()
        try:
            limit = front.gateway.config.limits.body_bytes_max
            assert limit == 64 << 20
            answer = await front.http.post("/v1/chat/completions", content=pieces(), headers=JSON)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.status_code == 413
        assert peak_bytes < limit + (16 << 20), "no more than the limit is ever held"
        assert engine.asked == []
        assert (await front.chat(session="s")).status_code == 200


async def test_what_is_not_there() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for method, path in (("GET", "/nothing"), ("POST", "/metrics"), ("DELETE", "/state")):
            answer = await front.http.request(method, path)
            assert answer.status_code == 404
            assert f"TAO has nothing at {path}" in error_of(answer)["message"]
        unknown = await front.http.get("/explain/nobody")
        assert unknown.status_code == 404
        assert unknown.json()["error"] == "no open session is named 'nobody'; /state lists them"
        assert engine.asked == []


async def test_what_is_for_tao_reaches_no_engine() -> None:
    """Least of all with the operators' token."""
    async with fake_engine() as engine, fronted(engine.url, admin_token="operator") as front:
        headers = {"authorization": "Bearer operator"}
        for path in ("/v1/tao/replicas/", "/v1/tao/replicas/add", "/v1/tao", "/v1//tao/replicas"):
            answer = await front.http.post(path, json={}, headers=headers)
            assert answer.status_code == 404, path
            assert f"TAO has nothing at {path}" in error_of(answer)["message"]
        for method, path in (
            ("DELETE", "/v1/tao/replicas"),
            ("GET", "/v1/tao/tools"),
            ("PUT", "/v1/tao/flush"),
        ):
            answer = await front.http.request(method, path, headers=headers)
            assert answer.status_code == 405, path
            assert error_of(answer)["message"] == f"{path} takes POST, not {method}"
        assert engine.asked == []


async def test_a_path_that_leads_elsewhere_reaches_no_engine() -> None:
    """Where a router stands before the engine, it resolves dot segments, and there are pages that need a token here."""
    paths = (b"/v1/../flush_cache", b"/v1/%2e%2E/flush_cache", b"/v1/..%2fflush_cache", b"/v1/.", b"/v1/x/..")
    async with fake_engine() as engine, fronted(engine.url) as front:
        host, _, port = front.url.removeprefix("http://").partition(":")
        for path in paths:
            answer = await exchange((host, int(port)), post(target=path))
            assert answer.startswith(b"HTTP/1.1 400"), path
            assert b"the path has a segment '.' or '..'" in answer
        assert engine.asked == []
        dotted = await exchange((host, int(port)), post(target=b"/v1/files/.hidden..txt"))
        assert dotted.startswith(b"HTTP/1.1 200")


async def test_a_request_with_garbage_in_its_headers_is_served() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        headers = {
            "x-session-id": "\xff\xfe odd \xe9" + "y" * 5000,
            "x-claude-code-prev-tool-durations": "%%%;=;a=-1;b=x",
            "x-codex-turn-metadata": "{not json",
            "x-stainless-retry-count": "many",
        }
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        body = {"model": "m", "messages": MESSAGES}
        answer = await front.http.post("/v1/chat/completions", json=body, headers=raw)
        assert answer.status_code == 200
        assert answer.headers["x-tao-session"].startswith("public/x")
        assert len(answer.headers["x-tao-session"]) < 60


async def test_a_flood_of_sessions_stays_within_the_tables() -> None:
    limits = Limits(identities_max=5)
    async with fake_engine() as engine, fronted(engine.url, limits=limits) as front:
        for number in range(20):
            assert (await front.chat(f"{number}", f"s{number}")).status_code == 200
        assert len(front.gateway._turns._sessions) == 5


class Faulty(Watched):
    """A policy with a defect."""

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        raise RuntimeError("broken on purpose")


async def test_a_defect_is_answered_and_told_on_the_health_page(logs: list[dict[str, Any]]) -> None:
    policy = Faulty(make_policy("tao"))
    async with fake_engine() as engine, fronted(engine.url, policy=policy) as front:
        front.failure = "RuntimeError: broken on purpose"
        answer = await front.chat("my secret", session="s")
        assert answer.status_code == 500
        assert "its log says why" in error_of(answer)["message"]
        health = await front.http.get("/healthz")
        assert (health.status_code, health.json()["failure"]) == (500, front.failure)
        assert (await front.http.get("/readyz")).status_code == 503
        assert front.gateway.driver._tickets == {}
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
            "the core failed",
            "a request failed",
        ]
