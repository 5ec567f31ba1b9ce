"""Tool events in TokenCake's and Dynamo's forms, sub-agents by their parents' ids, and the OpenAPI document."""

from typing import Any

import httpx
import msgspec
import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import Front, fronted

from tao.core.events import ToolExpected
from tests.gateway_tools.tools_kit import acting, is_over, phase, turn

# --- TokenCake ----------------------------------------------------------------------------------------------


async def stall(
    front: Front, event: str, lifecycle: str = "s", headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"event": event, "lifecycle_id": lifecycle, **fields}
    return await front.http.post("/v1/tokencake/events", json=body, headers=headers)


async def test_a_stall_whose_lifecycle_is_the_session() -> None:
    async with acting("search") as (front, _):
        started = await stall(front, "stall_started", kind="search", estimated_duration_s=8)
        assert started.json()["outcome"] == "applied"
        (expected,) = front.events(ToolExpected)
        assert expected.return_at - expected.at == pytest.approx(8, abs=0.1)
        again = await stall(front, "stall_started", kind="search", estimated_duration_s=8)
        assert again.json()["outcome"] == "repeated"
        assert (await stall(front, "stall_finished")).json()["session_over"] is True
        assert (await stall(front, "stall_finished")).json()["outcome"] == "repeated"
        assert is_over(front)


@pytest.mark.parametrize(
    "named", [{"session_id": "s"}, {"program_id": "s"}, {"headers": {"x-session-id": "s"}}]
)
async def test_a_stall_beside_a_named_session(named: dict[str, Any]) -> None:
    async with acting("search") as (front, _):
        assert (await stall(front, "stall_started", "l-1", **named)).status_code == 200
        assert (await stall(front, "stall_finished", "l-1", **named)).json()["session_over"] is True


async def test_stalls_that_contradict_or_are_unknown() -> None:
    async with acting("search") as (front, _):
        unknown = await stall(front, "stall_finished", "l-9", session_id="s")
        assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "unknown_call")
        assert (await stall(front, "stall_started", "nobody")).status_code == 404
        await stall(front, "stall_started", kind="search")
        assert (await stall(front, "stall_started", kind="shell")).status_code == 409
        assert (await stall(front, "stalled")).status_code == 400


# --- Dynamo -------------------------------------------------------------------------------------------------


async def record(front: Front, event: str, context: dict[str, str] | None, **tool: Any) -> httpx.Response:
    body = {
        "schema": "dynamo.agent.trace.v1",
        "event_type": event,
        "event_source": "harness",
        "tool": {"tool_call_id": "c1", "tool_class": "search", **tool},
    }
    if context is not None:
        body["agent_context"] = context
    return await front.http.post("/v1/dynamo/tool-events", json=body)


@pytest.mark.parametrize("end", ["tool_end", "tool_error"])
async def test_a_dynamo_record(end: str) -> None:
    context = {"session_type_id": "research", "session_id": "run", "trajectory_id": "s"}
    async with acting("search") as (front, _):
        assert (await record(front, "tool_start", context)).json()["tools_running"] == ["search"]
        assert (await record(front, end, context, duration_ms=840, status="ok")).json()[
            "session_over"
        ] is True


async def test_a_dynamo_record_must_name_a_session() -> None:
    async with acting("search") as (front, _):
        refused = await record(front, "tool_start", None)
        assert refused.status_code == 400
        assert "names no session" in refused.json()["error"]["message"]


# --- sub-agents ---------------------------------------------------------------------------------------------


def claude(agent: str | None = None, outer: str | None = None) -> dict[str, str]:
    """Claude Code's headers of a session or of one of its sub-agents."""
    headers = {"x-claude-code-session-id": "cc-1"}
    if agent is not None:
        headers["x-claude-code-agent-id"] = agent
    if outer is not None:
        headers["x-claude-code-parent-agent-id"] = outer
    return headers


async def test_a_sub_agent_of_claude_code_is_its_parents_tool() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await turn(front, engine, "Task", session="unused", headers=claude())
        await turn(front, engine, "Bash", session="unused", headers=claude("a1"))
        told = (await front.http.get("/explain/cc-1")).json()
        assert told["tool_evidence"][0]["children"] == {"public/cc-1:a1": "works"}
        assert not is_over(front, "cc-1")
        await turn(front, engine, session="unused", headers=claude("a1"))
        assert is_over(front, "cc-1"), "the sub-agent answered"


async def test_a_sub_agent_of_a_sub_agent() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await turn(front, engine, "Task", session="unused", headers=claude())
        await turn(front, engine, "Task", session="unused", headers=claude("a1"))
        await turn(front, engine, session="unused", headers=claude("a2", outer="a1"))
        assert is_over(front, "cc-1:a1")
        assert not is_over(front, "cc-1")


@pytest.mark.parametrize("parent_header", ["x-parent-session-id", "x-dynamo-parent-session-id"])
async def test_a_released_sub_agent_has_ended(parent_header: str) -> None:
    async with acting("delegate") as (front, engine):
        engine.then(says("ok", tools=["bash"], counts=usage(100, 10)))
        await front.chat("another task", session="child", headers={parent_header: "s"})
        assert not is_over(front)
        await front.http.post("/close_session", json={"session_id": "child"})
        assert is_over(front)


async def test_a_client_that_names_the_end_of_the_sub_agent_call_itself() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await turn(front, engine, "Task", session="unused", headers=claude())
        await turn(front, engine, "Bash", session="unused", headers=claude("a1"))
        body = {"session": "cc-1", "event": "end", "call_id": "toolu_1", "tool": "Task"}
        assert (await front.http.post("/v1/tao/tools", json=body)).status_code == 200
        ended_at = phase(front, "cc-1").finished_at
        assert ended_at is not None
        await turn(front, engine, session="unused", headers=claude("a1"))
        assert phase(front, "cc-1").finished_at == ended_at


# --- the document -------------------------------------------------------------------------------------------


async def openapi(front: Front) -> dict[str, Any]:
    page = await front.http.get("/openapi.json")
    assert page.status_code == 200
    document: dict[str, Any] = page.json()
    return document


async def test_every_documented_path_is_answered_by_tao_itself() -> None:
    async with acting("bash") as (front, engine):
        document = await openapi(front)
        assert document["openapi"].startswith("3.1")
        seen = len(engine.asked)
        for path, methods in document["paths"].items():
            for method in methods:
                answer = await front.http.request(
                    method, path.replace("{session}", "s"), json={"session_id": "t"}
                )
                needs_token = methods[method].get("security") == [{"admin": []}]
                assert answer.status_code in ({403} if needs_token else {200, 400}), path
        turns = [
            asked for asked in engine.asked[seen:] if asked.path not in {"/metrics", "/health", "/v1/models"}
        ]
        assert turns == [], "nothing went on to an engine"


async def test_the_documents_examples_are_taken_in() -> None:
    async with acting("bash") as (front, engine):
        for session in ("fix-17", "run-7", "run-7:main"):
            await turn(front, engine, "bash", session=session)
        document = await openapi(front)
        for path, methods in document["paths"].items():
            content = (
                methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
            )
            for name, example in content.get("examples", {}).items():
                answer = await front.http.post(path, json=example["value"])
                assert answer.status_code == 200, (path, name, answer.text)
                schema = document["components"]["schemas"]["Outcome"]
                assert set(answer.json()) == set(schema["required"]) == set(schema["properties"])
                assert answer.json()["outcome"] in schema["properties"]["outcome"]["enum"]


async def test_references_of_the_document_lead_somewhere_and_bounds_are_told() -> None:
    async with acting("bash") as (front, _):
        document = await openapi(front)
    schemas = document["components"]["schemas"]
    text = msgspec.json.encode(document).decode()
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in schemas
    event = schemas["ToolEvent"]
    assert event["required"] == ["session", "event", "call_id"]
    assert event["properties"]["session"]["maxLength"] == 256
    assert event["additionalProperties"] is False
