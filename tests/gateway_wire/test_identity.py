"""Ids as clients send them: precedence, conflicts, tenants, parents; hints and release requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.core.events import TurnKind
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.hints import read_hints, released_session, tool_durations
from tao.gateway.wire.identity import Claims, IdentitySource, bounded_id, read_claims, scoped, tenant_of
from tao.gateway.wire.sessions import IdentityConflictError, SessionIndex
from tests.gateway_wire.wire_builders import chat, request, user

UUID = "d1fd0154-37d1-48f4-ac2d-fe562cdba49b"


def claims(headers: dict[str, str] | None = None, **fields: Any) -> Claims:
    return read_claims(request("/v1/responses", {"input": "x", **fields}, headers))


@pytest.mark.parametrize(
    "fields",
    [
        {"program_id": "p"},
        {"extra_body": {"program_id": "p"}},
        {"vllm_xargs": {"agentic_context": {"program_id": "p", "session_id": "other"}}},
        {"vllm_xargs": {"session_id": "p"}},
        {"nvext": {"agent_context": {"session_id": "p", "trajectory_id": "t"}}},
        {"nvext": {"agent_context": {"trajectory_id": "p"}}},
        {"session_params": {"session_id": "p"}},
        {"session_id": "p"},
    ],
)
def test_explicit_body_ids_come_first(fields: dict[str, object]) -> None:
    found = claims({"x-session-id": "h"}, **fields)
    assert (found.ids[0].value, found.ids[0].source) == ("p", IdentitySource.BODY_EXPLICIT)
    assert len(found.conflicts) == 1


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ({"X-Claude-Code-Session-Id": UUID, "x-session-id": UUID}, UUID),
        ({"thread-id": "t", "session-id": "s", "x-client-request-id": "r"}, "t"),
        ({"session_id": "s"}, "s"),
        ({"x-opencode-session": "o"}, "o"),
        ({"x-session-affinity": "ses_1", "x-session-id": "ses_1"}, "ses_1"),
        ({"x-session-id": "g"}, "g"),
        ({"x-dynamo-session-id": "g"}, "g"),
        ({"x-smg-routing-key": "g"}, "g"),
        ({"x-litellm-session-id": "g"}, "g"),
        ({"x-aibrix-session-key": "g"}, "g"),
    ],
)
def test_headers_of_clients_and_generic_ones(headers: dict[str, str], value: str) -> None:
    found = claims(headers)
    assert found.ids[0].value == value
    assert found.conflicts == ()


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"metadata": {"user_id": f"user_ab_account__session_{UUID}"}}, UUID),
        ({"metadata": {"user_id": f'{{"device_id": "d", "session_id": "{UUID}"}}'}}, UUID),
        ({"metadata": {"session_id": "m"}}, "m"),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_2"}}, "conv_2"),
    ],
)
def test_body_keys(fields: dict[str, object], value: str) -> None:
    found = claims(None, **fields)
    assert (found.ids[0].value, found.ids[0].source) == (value, IdentitySource.BODY_KEY)


def test_ids_of_people_and_junk_are_no_sessions() -> None:
    junk = {"program_id": 7, "session_id": "", "metadata": {"user_id": "{broken"}, "conversation": ["x"]}
    assert claims(None, user="alice", safety_identifier="s", **junk).ids == ()


def test_a_sub_agent_of_claude_code_is_a_lineage_of_its_own() -> None:
    index = SessionIndex()
    headers = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a1"}
    child = index.resolve(chat([user("x")], headers=headers), 0.0).identity
    assert (child.session_id, child.parent) == ("public/s:a1", "public/s")
    nested = index.resolve(
        chat(
            [user("x")],
            headers={**headers, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"},
        ),
        0.0,
    ).identity
    assert (nested.session_id, nested.parent) == ("public/s:a2", child.session_id)


@pytest.mark.parametrize(
    ("headers", "fields", "parent"),
    [
        ({"thread-id": "t2", "session-id": "s", "x-codex-parent-thread-id": "t1"}, {}, "t1"),
        ({"x-session-id": "c", "x-parent-session-id": "p"}, {}, "p"),
        ({"x-dynamo-session-id": "c", "x-dynamo-parent-session-id": "p"}, {}, "p"),
        ({"x-litellm-session-id": "child"}, {"prompt_cache_key": "parent"}, "parent"),
        ({"x-litellm-session-id": "one"}, {"prompt_cache_key": "one"}, ""),
        ({}, {"vllm_xargs": {"agentic_context": {"program_id": "c", "parent_program_id": "p"}}}, "p"),
    ],
)
def test_parents(headers: dict[str, str], fields: dict[str, object], parent: str) -> None:
    assert claims(headers, **fields).parent == parent


def test_contradicting_ids_are_refused_when_strict_and_named_otherwise() -> None:
    parsed = chat([user("x")], headers={"x-session-id": "sess-7"}, program_id="prog-7")
    resolution = SessionIndex().resolve(parsed, 0.0)
    assert resolution.identity.session_id == "public/prog-7"
    assert resolution.conflicts == ("x-session-id=sess-7 differs from program_id=prog-7",)
    with pytest.raises(IdentityConflictError, match="x-session-id=sess-7"):
        SessionIndex(strict=True).resolve(parsed, 0.0)


def test_tenants_are_hashes_of_keys_and_keep_equal_ids_apart() -> None:
    index = SessionIndex()
    ids = set()
    for headers in (
        {},
        {"authorization": "Bearer one"},
        {"authorization": "Bearer two"},
        {"x-api-key": "one"},
    ):
        identity = index.resolve(chat([user("x")], headers={**headers, "x-session-id": "s"}), 0.0).identity
        assert "one" not in identity.session_id
        ids.add(identity.session_id)
    assert len(ids) == 4


@pytest.mark.parametrize("value", ["x" * 5000, "a/b", "sp ace", "\x00", "~1", "é", "<script>"])
def test_ids_are_bounded_and_plain(value: str) -> None:
    assert len(bounded_id(value)) == 25
    assert bounded_id(value) != bounded_id(value + "x")
    assert bounded_id("ses_dd8a99fe2ffecPnBaBL7dJEFQo") == "ses_dd8a99fe2ffecPnBaBL7dJEFQo"


@pytest.mark.parametrize(
    ("headers", "declared"),
    [
        ({"x-claude-code-request-class": "auxiliary"}, TurnKind.SIDE),
        ({"x-claude-code-request-class": "compaction"}, TurnKind.SIDE),
        ({"x-claude-code-request-class": "main"}, None),
        ({"x-claude-code-request-class": "main", "x-claude-code-context-compacted": "1"}, TurnKind.RESET),
        ({"x-codex-turn-metadata": '{"request_kind": "compaction"}'}, TurnKind.SIDE),
        ({"x-codex-turn-metadata": '{"request_kind": "turn"}'}, None),
        ({"x-codex-turn-metadata": "{broken"}, None),
        ({"x-openai-subagent": "memory_consolidation"}, TurnKind.SIDE),
        ({}, None),
    ],
)
def test_declared_kinds(headers: dict[str, str], declared: TurnKind | None) -> None:
    assert read_hints(chat([user("x")], headers=headers).headers).declared is declared


def test_measured_tool_durations() -> None:
    assert tool_durations("Bash=742;Read=9") == (("Bash", 0.742), ("Read", 0.009))
    assert tool_durations("a%3Bb%3D=1; x =2;bad;=3;y=-1;z=1.5") == (("a;b=", 0.001), ("x ", 0.002))
    assert len(tool_durations(";".join(f"t{i}=1" for i in range(100)))) == 32


@given(st.text(max_size=200))
def test_durations_never_raise(value: str) -> None:
    tool_durations(value)


def test_retries_and_endings() -> None:
    def hints(name: str, value: str) -> tuple[bool, bool]:
        found = read_hints(chat([user("x")], headers={name: value}).headers)
        return found.retry, found.final

    assert hints("x-stainless-retry-count", "2") == (True, False)
    assert hints("x-stainless-retry-count", "0") == (False, False)
    assert hints("x-stainless-retry-count", "²") == (False, False)
    assert hints("x-dynamo-session-final", "true") == (False, True)
    assert hints("x-session-final", "false") == (False, False)


@pytest.mark.parametrize(
    ("path", "query", "body"),
    [
        ("/programs/release", "", b'{"program_id": "p"}'),
        ("/v1/programs/release", "", b'{"program_id": "p"}'),
        ("/finish_session", "session_id=p", b""),
        ("/close_session", "", b'{"session_id": "p"}'),
    ],
)
def test_release_aliases(path: str, query: str, body: bytes) -> None:
    headers = Headers([(b"authorization", b"Bearer one")])
    assert released_session("POST", path, query, headers, body) == scoped(tenant_of(headers), "p")


def test_a_release_without_a_name_says_so() -> None:
    assert released_session("GET", "/finish_session", "session_id=p", Headers(), b"") is None
    assert released_session("POST", "/v1/messages", "", Headers(), b"") is None
    with pytest.raises(ValueError, match="needs 'program_id'"):
        released_session("POST", "/programs/release", "", Headers(), b"junk")
