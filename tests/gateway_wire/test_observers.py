"""Answers of every dialect, streamed at every split and whole: usage, tool calls, endings, errors."""

import gzip
import itertools
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.gateway.wire.answers import OpenAiChoices, reader_for
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.encodings import ObservedBody
from tao.gateway.wire.facts import ARGUMENT_CHARS_MAX, TOOL_CALLS_MAX, ResponseFacts, Usage
from tao.gateway.wire.observers import _Stream, observe_response
from tao.gateway.wire.toolcalls import ToolCall, ToolObservation
from tests.gateway_wire.wire_builders import sse

ARGUMENTS = '{"command": "cd /r && sleep 3", "timeout": 5000}'


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CHAT = sse(
    [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "let"}),
        chunk({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "bash", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[:9]}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[9:]}}]}),
        chunk(
            {"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "read", "arguments": "{}"}}]}
        ),
        chunk({}, "tool_calls"),
        {
            "id": "chatcmpl-1",
            "choices": [],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        },
    ]
)
RESPONSES = sse(
    [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ARGUMENTS[:9]},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ARGUMENTS[9:]},
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": ARGUMENTS},
        },
        {
            "type": "response.completed",
            "response": {
                "id": "resp_1",
                "status": "completed",
                "usage": {
                    "input_tokens": 100,
                    "output_tokens": 9,
                    "input_tokens_details": {"cached_tokens": 64},
                },
            },
        },
    ],
    named=True,
    done=False,
)
ANTHROPIC = sse(
    [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "usage": {
                    "input_tokens": 30,
                    "cache_read_input_tokens": 64,
                    "cache_creation_input_tokens": 6,
                },
            },
        },
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "call_1", "name": "bash", "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": ARGUMENTS[:9]}},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": ARGUMENTS[9:]}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ],
    named=True,
    done=False,
)
STREAMS = {
    Dialect.OPENAI_CHAT: (CHAT, "chatcmpl-1", "tool_calls"),
    Dialect.OPENAI_RESPONSES: (RESPONSES, "resp_1", "completed"),
    Dialect.ANTHROPIC_MESSAGES: (ANTHROPIC, "msg_1", "tool_use"),
}


def observe(
    dialect: Dialect,
    chunks: list[bytes],
    *,
    kind: str = "text/event-stream",
    status: int = 200,
    coding: str = "",
) -> ResponseFacts:
    observer = observe_response(dialect, status=status, content_type=kind, content_encoding=coding)
    for piece in chunks:
        observer.feed(piece)
    return observer.close()


@pytest.mark.parametrize("dialect", list(STREAMS))
def test_streams_split_at_every_byte(dialect: Dialect) -> None:
    stream, response_id, finish = STREAMS[dialect]
    whole = observe(dialect, [stream])
    assert whole.usage == Usage(100, 64, 9)
    assert whole.tool_calls[0] == ToolCall("call_1", "bash", ARGUMENTS)
    assert (whole.response_id, whole.finish_reason, whole.complete, whole.error) == (
        response_id,
        finish,
        True,
        None,
    )
    assert whole.tools(tools_declared=True)[0] == ToolObservation("bash", "sleep", 3.0, 5.0, background=False)
    for split in range(len(stream)):
        assert observe(dialect, [stream[:split], stream[split:]]) == whole
    assert observe(dialect, [bytes([byte]) for byte in stream]) == whole


def test_parallel_calls_and_output_are_counted() -> None:
    facts = observe(Dialect.OPENAI_CHAT, [CHAT])
    assert [call.name for call in facts.tool_calls] == ["bash", "read"]
    assert facts.output_deltas == 5
    assert facts.text == "let"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate"])
def test_a_compressed_stream_is_read_through_a_copy(coding: str) -> None:
    wbits = {"gzip": 31, "deflate": 15, "raw deflate": -15}[coding]
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(CHAT) + packer.flush()
    pieces = [packed[i : i + 1] for i in range(len(packed))]
    facts = observe(Dialect.OPENAI_CHAT, pieces, coding=coding.removeprefix("raw "))
    assert facts == observe(Dialect.OPENAI_CHAT, [CHAT])


@pytest.mark.parametrize(
    ("coding", "data"), [("br", b"x"), ("gzip", b"not gzip"), ("deflate", b"\xff\xff\xff")]
)
def test_what_cannot_be_decoded_is_not_observed(coding: str, data: bytes) -> None:
    assert observe(Dialect.OPENAI_CHAT, [data, data], coding=coding) == ResponseFacts()


def test_a_decompression_bomb_ends_observation() -> None:
    bomb = gzip.compress(b"data: " + b"x" * (65 << 20))
    assert observe(Dialect.OPENAI_CHAT, [bomb], coding="gzip") == ResponseFacts()


def test_whole_answers_of_each_dialect() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": ARGUMENTS}}
    documents: dict[Dialect, dict[str, Any]] = {
        Dialect.OPENAI_CHAT: {
            "id": "i",
            "choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None},
        },
        Dialect.OPENAI_RESPONSES: {
            "id": "i",
            "status": "completed",
            "output": [
                {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": ARGUMENTS}
            ],
            "usage": {"input_tokens": 7, "output_tokens": 2},
        },
        Dialect.ANTHROPIC_MESSAGES: {
            "id": "i",
            "stop_reason": "tool_use",
            "content": [{"type": "tool_use", "id": "call_1", "name": "bash", "input": json.loads(ARGUMENTS)}],
            "usage": {"input_tokens": 7, "output_tokens": 2},
        },
    }
    for dialect, document in documents.items():
        facts = observe(dialect, [json.dumps(document).encode()], kind="application/json")
        assert facts.usage == Usage(7, None, 2), dialect
        assert facts.complete
        assert facts.tools(tools_declared=True) == (ToolObservation("bash", "sleep", 3.0, 5.0),)


@pytest.mark.parametrize("prompt", [None, 0, -1, True, 1.5, "12", 2**40])
def test_counts_without_a_prompt_that_can_be_are_no_usage(prompt: object) -> None:
    """Taken for an empty context it would free the session's place on the replica; taken as it is, it would book it all."""
    usage = {"prompt_tokens": prompt, "completion_tokens": 50}
    answer = json.dumps({"choices": [], "usage": usage}).encode()
    assert observe(Dialect.OPENAI_CHAT, [answer], kind="application/json").usage is None


@pytest.mark.parametrize("output", [None, -1, True, 1.5, 2**40])
def test_an_output_that_cannot_be_is_none(output: object) -> None:
    answer = json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": output}}).encode()
    assert observe(Dialect.OPENAI_CHAT, [answer], kind="application/json").usage == Usage(7, None, 0)


def test_completions_stream_and_codex_shells() -> None:
    text = observe(Dialect.OPENAI_COMPLETIONS, [sse([{"id": "c", "choices": [{"index": 0, "text": "abc"}]}])])
    assert (text.text, text.complete, text.usage) == ("abc", True, None)
    item = {
        "type": "local_shell_call",
        "call_id": "c",
        "action": {"type": "exec", "command": ["bash", "-lc", "sleep 2"], "timeout_ms": 1500},
    }
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    shell = observe(Dialect.OPENAI_RESPONSES, [sse([done], named=True)])
    assert shell.tools(tools_declared=True) == (ToolObservation("local_shell", "sleep", 1.5, 1.5),)


def test_fenced_blocks_count_only_where_no_tools_were_declared() -> None:
    text = "I look.\n\n```mswea_bash_command\ncd /r && sleep 2 && pytest -q\n```\n"
    facts = observe(Dialect.OPENAI_CHAT, [sse([chunk({"content": piece}) for piece in text])])
    assert facts.tools(tools_declared=False) == (ToolObservation("bash", "sleep", 2.0),)
    assert facts.tools(tools_declared=True) == ()
    unclosed = observe(Dialect.OPENAI_CHAT, [sse([chunk({"content": "```bash\n" * 1000})])])
    assert unclosed.tools(tools_declared=False) == ()


@pytest.mark.parametrize(
    ("dialect", "stream"),
    [
        (Dialect.OPENAI_CHAT, sse([{"error": {"message": "boom", "code": 500}}])),
        (Dialect.OPENAI_CHAT, sse([{"object": "error", "message": "boom"}])),
        (
            Dialect.ANTHROPIC_MESSAGES,
            sse([{"type": "error", "error": {"type": "x", "message": "boom"}}], done=False),
        ),
        (Dialect.OPENAI_RESPONSES, sse([{"type": "error", "message": "boom"}], named=True)),
        (
            Dialect.OPENAI_RESPONSES,
            sse(
                [{"type": "response.failed", "response": {"status": "failed", "error": {"message": "boom"}}}]
            ),
        ),
    ],
)
def test_errors_within_a_stream(dialect: Dialect, stream: bytes) -> None:
    assert observe(dialect, [stream]).error == "boom"


def test_error_answers_and_a_cut_stream() -> None:
    body = b'{"error": {"message": "too long"}}'
    assert observe(Dialect.OPENAI_CHAT, [body], kind="application/json", status=400).error == "too long"
    assert observe(Dialect.PASS_THROUGH, [b"gone"], kind="text/html", status=502).error == "gone"
    assert observe(Dialect.PASS_THROUGH, [b""], status=502).error == "status 502"
    cut = observe(Dialect.OPENAI_CHAT, [CHAT[: len(CHAT) // 2]])
    assert not cut.complete
    assert cut.response_id == "chatcmpl-1"


def test_bounds_on_calls_and_arguments() -> None:
    many = [
        chunk(
            {"tool_calls": [{"index": i, "id": str(i), "function": {"name": "t", "arguments": "x" * 70_000}}]}
        )
        for i in range(TOOL_CALLS_MAX + 5)
    ]
    facts = observe(Dialect.OPENAI_CHAT, [sse(many)])
    assert len(facts.tool_calls) == TOOL_CALLS_MAX
    assert len(facts.tool_calls[0].arguments) == ARGUMENT_CHARS_MAX
    assert facts.tool_calls[0].truncated


FIELDS = """
id type choices delta message content tool_calls index function name arguments usage prompt_tokens
prompt_tokens_details cached_tokens completion_tokens finish_reason error response item output_index
status output content_block input partial_json text thinking stop_reason input_tokens output_tokens
object cache_read_input_tokens function_call custom action call_id
"""
field_names = st.sampled_from(FIELDS.split())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(field_names, inner, max_size=5),
    max_leaves=25,
)
dialects = st.sampled_from(list(Dialect))
kinds = st.sampled_from(["text/event-stream; charset=utf-8", "application/json", ""])
statuses = st.sampled_from([200, 400, 503])


@given(dialects, kinds, statuses, st.lists(st.dictionaries(field_names, json_values, max_size=6), max_size=6))
def test_no_json_raises(dialect: Dialect, kind: str, status: int, events: list[dict[str, Any]]) -> None:
    observe(dialect, [sse(events)], kind=kind, status=status).tools(tools_declared=False)
    observe(dialect, [json.dumps(event).encode() for event in events[:1]], kind=kind, status=status)


@given(
    dialects,
    kinds,
    statuses,
    st.sampled_from(["", "gzip", "deflate", "br"]),
    st.lists(st.binary(), max_size=8),
)
def test_no_bytes_raise(dialect: Dialect, kind: str, status: int, coding: str, chunks: list[bytes]) -> None:
    facts = observe(dialect, chunks, kind=kind, status=status, coding=coding)
    if coding in {"", "br"}:
        # Where a corrupt compressed body breaks off depends on the chunks; what is plain never does.
        assert observe(dialect, [b"".join(chunks)], kind=kind, status=status, coding=coding) == facts


def test_deep_nesting_is_no_crash() -> None:
    assert observe(Dialect.OPENAI_CHAT, [b"data: " + b'{"a":' * 100_000 + b"\n\n"]) == ResponseFacts()


texts = st.none() | st.text(max_size=4) | st.integers() | st.lists(st.text(max_size=2), max_size=1)
rare = st.sampled_from(
    [{}, {}, {}, {"tool_calls": None}, {"tool_calls": [{"index": 0, "function": {"name": "t"}}]}]
)
more = st.sampled_from(
    [{}, {}, {"usage": None}, {"usage": {"prompt_tokens": 3}}, {"error": {"message": "x"}}]
)
finishes = st.sampled_from([None, None, "stop", 3])
chat_events = st.builds(
    lambda text, extra, finish, outer, hidden: {
        "choices": [{"delta": {"content": text, **extra, **hidden}, "finish_reason": finish}],
        **outer,
    },
    texts,
    rare,
    finishes,
    more,
    st.sampled_from([{}, {}, {"reasoning": "r"}, {"reasoning_content": None}]),
)
typed_events = st.builds(
    lambda kind, delta: {"type": kind, "delta": delta},
    st.sampled_from(
        ["response.output_text.delta", "content_block_delta", "response.reasoning_text.delta", "ping"]
    ),
    texts | st.builds(lambda text: {"type": "text_delta", "text": text}, texts) | st.just({"thinking": "t"}),
)
beginnings: dict[Dialect, dict[str, Any]] = {
    Dialect.OPENAI_CHAT: {"id": "c"},
    Dialect.OPENAI_RESPONSES: {"type": "response.created", "response": {"id": "r"}},
    Dialect.ANTHROPIC_MESSAGES: {"type": "message_start", "message": {"id": "m"}},
}


@given(st.sampled_from(list(beginnings)), st.lists(chat_events | typed_events, max_size=8))
def test_the_quick_way_past_plain_text_sees_the_same(dialect: Dialect, events: list[dict[str, Any]]) -> None:
    stream = sse([beginnings[dialect], *events])
    reader = reader_for(dialect)
    assert reader is not None
    slow = _Stream(ObservedBody(""), reader, lambda data, into: None)
    slow.feed(stream)
    assert observe(dialect, [stream]) == slow.close()


def frames(texts: list[str], *, spaced: bool) -> list[bytes]:
    """One event a text, written as engines do: all alike but for the text."""
    separators = None if spaced else (",", ":")
    events = ({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts)
    return [b"data: %b\n\n" % json.dumps(event, separators=separators).encode() for event in events]


awkward = st.text() | st.sampled_from(["", "\\", '"', '"}}]}', "\n\n", "data: ", "c", "é\\", "\u2028", "ok"])


@given(
    st.lists(awkward, max_size=12),
    st.booleans(),
    st.sampled_from(
        [b"", b"data: [DONE]\n\n", b": ping\n\n", b'data: {"choices": [{"delta": {"content": "x\\']
    )
    | st.binary(max_size=8),
    st.integers(0, 6),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_repeated_events_read_together_are_the_same_events(
    texts: list[str], spaced: bool, between: bytes, at: int, cuts: list[int]
) -> None:
    events = frames(texts, spaced=spaced)
    events.insert(at, between)
    stream = b"".join(events)
    places = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]
    one_by_one = _Stream(ObservedBody(""), OpenAiChoices(), lambda data, into: None)
    one_by_one.feed(stream)
    assert observe(Dialect.OPENAI_CHAT, pieces) == one_by_one.close()


def test_a_stream_whose_events_are_never_alike_is_read_one_by_one() -> None:
    events = [
        {"id": f"c{number}", "choices": [{"delta": {"content": str(number)}}], "created": number}
        for number in range(20)
    ]
    facts = observe(Dialect.OPENAI_CHAT, [sse([event]) for event in events])
    assert (facts.output_deltas, facts.text) == (20, "".join(map(str, range(20))))


def test_a_stream_that_changes_its_frame_is_followed() -> None:
    events = [
        {"id": "c", "choices": [{"delta": {"content": f"{number} "}}], "created": number // 50}
        for number in range(1000)
    ]
    facts = observe(Dialect.OPENAI_CHAT, [sse(events)])
    assert (facts.output_deltas, facts.text) == (1000, "".join(f"{number} " for number in range(1000)))
