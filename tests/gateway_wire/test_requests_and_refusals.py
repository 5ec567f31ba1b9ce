"""Requests read from bytes, and what the gateway says itself in each dialect."""

import contextlib
import gzip
import json
import math

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.gateway.wire.dialects import Dialect, dialect_of
from tao.gateway.wire.prefix import prompt_chain
from tao.gateway.wire.refusals import Problem, error_body, error_event, keep_alive, refusal, retry_after
from tao.gateway.wire.requests import MalformedRequestError, parse_request
from tao.gateway.wire.sse import SseParser
from tests.gateway_wire.wire_builders import chat, request, user


@pytest.mark.parametrize(
    ("method", "path", "dialect"),
    [
        ("POST", "/v1/chat/completions", Dialect.OPENAI_CHAT),
        ("POST", "/v1/completions", Dialect.OPENAI_COMPLETIONS),
        ("POST", "/v1/responses", Dialect.OPENAI_RESPONSES),
        ("POST", "/v1/messages", Dialect.ANTHROPIC_MESSAGES),
        ("POST", "/v1/messages/count_tokens", Dialect.ANTHROPIC_COUNT_TOKENS),
        ("POST", "/v1/chat/completions/", Dialect.OPENAI_CHAT),
        ("GET", "/v1/chat/completions", Dialect.PASS_THROUGH),
        ("POST", "/v1/embeddings", Dialect.PASS_THROUGH),
        ("GET", "/v1/responses/resp_1", Dialect.PASS_THROUGH),
        ("POST", "/", Dialect.PASS_THROUGH),
    ],
)
def test_dialects(method: str, path: str, dialect: Dialect) -> None:
    assert dialect_of(method, path) is dialect


def test_the_facts_of_a_request() -> None:
    parsed = chat(
        [user("hi")],
        stream=True,
        max_tokens=9,
        max_completion_tokens=7,
        stream_options={"include_usage": True},
    )
    assert (parsed.model, parsed.stream, parsed.max_tokens, parsed.wants_usage) == ("tiny", True, 7, True)
    assert parsed.conversation == [user("hi")]
    assert not chat([user("hi")], stream=True).wants_usage
    responses = request("/v1/responses", {"input": "hello", "stream": True, "max_output_tokens": 5})
    assert (responses.conversation, responses.wants_usage, responses.max_tokens) == ("hello", True, 5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body is empty"),
        (b"{", "malformed JSON"),
        (b'{"a": "\xff"}', "malformed JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1]", "expected a JSON object, got an array"),
        (b'"x"', "got a string"),
        (b'{"model": 3, "messages": []}', "'model' must be a string, got a number"),
        (b'{"stream": "yes", "messages": []}', "'stream' must be true or false, got a string"),
        (b"{}", "'messages' must be an array of messages, got nothing"),
        (b'{"messages": {"role": "user"}}', "'messages' must be an array of messages, got an object"),
        (b'{"messages": ["hi"]}', "'messages[0]' must be an object, got a string"),
    ],
)
def test_a_malformed_body_is_named(body: bytes, message: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        parse_request("POST", "/v1/chat/completions", [], body)
    assert message in str(caught.value)


def test_a_prompt_of_the_wrong_type_is_named() -> None:
    with pytest.raises(MalformedRequestError, match="'prompt' must be a string or an array, got a number"):
        request("/v1/completions", {"prompt": 5})


def test_compressed_bodies() -> None:
    body = json.dumps({"model": "tiny", "messages": [user("hi")]}).encode()
    headers = [(b"content-encoding", b"gzip")]
    parsed = parse_request("POST", "/v1/chat/completions", headers, gzip.compress(body))
    assert parsed.model == "tiny"
    unknown = parse_request("POST", "/v1/responses", [(b"content-encoding", b"zstd")], b"\x28\xb5")
    assert unknown.opaque
    assert prompt_chain(unknown) is None


@given(
    st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]), st.binary()
)
def test_no_body_raises_anything_else(path: str, body: bytes) -> None:
    with contextlib.suppress(MalformedRequestError):
        prompt_chain(parse_request("POST", path, [(b"x", b"\xff")], body))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "thinking", "id", "url"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]),
    st.dictionaries(
        st.sampled_from(
            ["messages", "input", "prompt", "system", "tools", "instructions", "model", "stream"]
        ),
        values,
    ),
)
def test_no_document_raises_anything_else(path: str, document: dict[str, object]) -> None:
    try:
        parsed = parse_request("POST", path, [], json.dumps(document).encode())
    except MalformedRequestError:
        return
    chain = prompt_chain(parsed)
    assert chain is None or chain.text_bytes >= 0


def test_the_openai_sdk_understands_an_error_body_and_an_error_event() -> None:
    answer = refusal(
        Dialect.OPENAI_CHAT, Problem.POOL_FULL, "the waiting pool is full", retry_after_seconds=12.2
    )
    assert answer.status == 429
    assert (b"retry-after", b"13") in answer.headers
    assert json.loads(answer.body)["error"]["code"] == "waiting_pool_full"
    events = SseParser().feed(error_event(Dialect.OPENAI_CHAT, Problem.UPSTREAM_FAILED, "cut"))
    assert json.loads(events[0].data)["error"]["message"] == "cut"
    assert events[1].data == b"[DONE]"
    assert openai.RateLimitError.status_code == answer.status


def test_anthropic_forms() -> None:
    answer = refusal(Dialect.ANTHROPIC_MESSAGES, Problem.POOL_FULL, "full", retry_after_seconds=5)
    assert answer.status == 529
    assert json.loads(answer.body) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "full"},
    }
    event = SseParser().feed(error_event(Dialect.ANTHROPIC_MESSAGES, Problem.INTERNAL, "x"))[0]
    assert event.name == b"error"
    assert json.loads(event.data)["error"]["type"] == "api_error"
    assert issubclass(anthropic.InternalServerError, anthropic.APIStatusError)


def test_a_responses_stream_ends_with_events_that_codex_and_the_sdk_notice() -> None:
    failed, error = SseParser().feed(error_event(Dialect.OPENAI_RESPONSES, Problem.UPSTREAM_FAILED, "cut"))
    assert (failed.name, error.name) == (b"response.failed", b"error")
    assert json.loads(failed.data)["response"]["error"]["message"] == "cut"
    assert json.loads(error.data)["error"]["message"] == "cut"


def test_keep_alives_are_invisible() -> None:
    assert SseParser().feed(keep_alive(Dialect.OPENAI_CHAT)) == []
    assert SseParser().feed(keep_alive(Dialect.ANTHROPIC_MESSAGES))[0].name == b"ping"


@pytest.mark.parametrize(
    ("seconds", "header"), [(0, 1), (0.2, 1), (59.1, 60), (900, 60), (math.inf, 60), (math.nan, 60)]
)
def test_retry_after_is_whole_and_bounded(seconds: float, header: int) -> None:
    assert retry_after(seconds) == header


@pytest.mark.parametrize("problem", list(Problem))
def test_every_problem_in_every_dialect(problem: Problem) -> None:
    for dialect in Dialect:
        answer = refusal(dialect, problem, "m\n")
        assert 400 <= answer.status < 600
        assert json.loads(answer.body)["error"]["message"] == "m\n"
        assert error_body(dialect, problem, "m\n") == answer.body
        assert SseParser().feed(error_event(dialect, problem, "m\n"))
