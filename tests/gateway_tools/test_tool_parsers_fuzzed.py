"""Whatever clients and engines send: the parsers of tools raise nothing else, take linear time, and keep within bounds."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.gateway.callbook import CallBook, ConflictError, TooManyCallsError, UnknownCallError
from tao.gateway.toolreports import ReportKind, ToolReport, dynamo_record, stall_event, tool_event
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.facts import ResponseFacts
from tao.gateway.wire.hints import DURATION_ENTRIES_MAX, tool_durations
from tao.gateway.wire.observers import observe_response
from tao.gateway.wire.requests import MalformedRequestError
from tao.gateway.wire.toolcalls import ToolCall, fenced_tool, observe_tool
from tao.traces.shell import read_command

READERS: dict[str, Callable[[bytes], ToolReport]] = {
    "tao": tool_event,
    "tokencake": lambda body: stall_event(body, ""),
    "dynamo": lambda body: dynamo_record(body, ""),
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from(
    [
        "session",
        "event",
        "call_id",
        "tool",
        "command",
        "expected_seconds",
        "remaining_seconds",
        "fraction_done",
        "duration_seconds",
        "lifecycle_id",
        "kind",
        "estimated_duration_s",
        "event_type",
        "agent_context",
        "trajectory_id",
        "session_id",
    ]
)
documents = st.dictionaries(
    field_names | st.text(max_size=6),
    json_values | st.sampled_from(["start", "end", "progress", "deadline", "stall_started", "tool_end", {}]),
    max_size=10,
)


@pytest.mark.parametrize("form", READERS)
@given(body=st.binary(max_size=200) | documents.map(lambda document: json.dumps(document).encode()))
def test_no_event_raises_anything_else(form: str, body: bytes) -> None:
    with suppress(MalformedRequestError):
        report = READERS[form](body)
        assert report.session
        assert 1 <= len(report.call_id) <= 256
        assert len(report.tool) <= 128


fences = st.sampled_from(
    ["```", "```bash", "```sh\n", "\n```\n", "```mswea_bash_command\r\n", "\n", "sleep 5", "é", "`"]
)


@given(st.lists(fences | st.text(max_size=8), max_size=40).map("".join))
def test_no_text_raises_where_a_fenced_block_is_looked_for(text: str) -> None:
    found = fenced_tool(text)
    assert found is None or found.name == "bash"


@given(st.text(max_size=60), st.text(max_size=200) | documents.map(json.dumps), st.booleans())
def test_no_tool_call_raises(name: str, arguments: str, truncated: bool) -> None:
    seen = observe_tool(ToolCall("c", name, arguments, truncated))
    for seconds in (seen.sleep_seconds, seen.timeout_seconds):
        assert seconds is None or seconds >= 0


@given(st.text(max_size=300))
def test_no_durations_raise(value: str) -> None:
    assert len(tool_durations(value)) <= DURATION_ENTRIES_MAX


@given(
    st.lists(st.sampled_from(["Bash", "=", ";", "1", "99", "%3B", "%", "é", " ", "-"]), max_size=300).map(
        "".join
    )
)
def test_durations_are_bounded(value: str) -> None:
    found = tool_durations(value)
    assert len(found) <= DURATION_ENTRIES_MAX
    assert all(seconds >= 0 and len(name) <= 128 for name, seconds in found)


# --- linear time --------------------------------------------------------------------------------------------------------

SIZE = 4_000


def streamed(dialect: Dialect, bytes_of_chunk: int) -> Callable[[str], Any]:
    """An observer that is fed an event stream in pieces."""

    def observe(stream: str) -> ResponseFacts:
        observer = observe_response(
            dialect, status=200, content_type="text/event-stream", content_encoding=""
        )
        data = stream.encode()
        for start in range(0, len(data), bytes_of_chunk):
            observer.feed(data[start : start + bytes_of_chunk])
        facts = observer.close()
        facts.tools(tools_declared=True)
        return facts

    return observe


def chat_event(call: str) -> str:
    return 'data: {"choices":[{"index":0,"delta":{"tool_calls":[' + call + "]}}]}\n\n"


ARGUMENTS = chat_event('{"index":0,"id":"a","function":{"name":"bash","arguments":"{\\"a\\":"}}')
NEW_CALLS = chat_event('{"index":7,"function":{"name":"x","arguments":"[["}}')
BLOCK = (
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    '"delta":{"type":"input_json_delta","partial_json":"[{"}}\n\n'
)
ITEM = 'data: {"type":"response.function_call_arguments.delta","item_id":"i","output_index":0,"delta":"\\u00fc["}\n\n'
PATTERNS: dict[str, tuple[Callable[[str], Any], str]] = {
    "unclosed fences": (fenced_tool, "```bash\n"),
    "fences and closings": (fenced_tool, "``` \n```bash\n"),
    "nested substitutions": (read_command, "$("),
    "backticks": (read_command, "a`"),
    "quotes": (read_command, "\"'"),
    "escapes in quotes": (read_command, '"\\'),
    "here-documents": (read_command, "<<A\n"),
    "shells": (read_command, "bash -c '"),
    "loops": (read_command, "while "),
    "redirections": (read_command, "2>&1 >"),
    "durations": (tool_durations, "a=1;"),
    "percents": (tool_durations, "%4="),
    "chat arguments": (streamed(Dialect.OPENAI_CHAT, 64), ARGUMENTS),
    "chat arguments by bytes": (streamed(Dialect.OPENAI_CHAT, 1), ARGUMENTS),
    "chat calls": (streamed(Dialect.OPENAI_CHAT, 64), NEW_CALLS),
    "messages arguments": (streamed(Dialect.ANTHROPIC_MESSAGES, 64), BLOCK),
    "messages arguments by bytes": (streamed(Dialect.ANTHROPIC_MESSAGES, 1), BLOCK),
    "responses arguments": (streamed(Dialect.OPENAI_RESPONSES, 64), ITEM),
    "a line without end by bytes": (streamed(Dialect.OPENAI_CHAT, 1), "data: [[[["),
    "lines without data": (streamed(Dialect.OPENAI_CHAT, 16), ":\n\r\n"),
}


def seconds_for(parse: Callable[[str], Any], text: str) -> float:
    """CPU time, the best of some runs."""
    best = float("inf")
    for _time in range(7):
        started = time.process_time()
        parse(text)
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize("pattern", PATTERNS)
def test_time_grows_no_faster_than_the_input(pattern: str) -> None:
    """Quadratic work would take 16 times as long for four times the input."""
    parse, piece = PATTERNS[pattern]
    short = piece * (SIZE // len(piece))
    assert seconds_for(parse, short * 4) < 12 * seconds_for(parse, short) + 0.002


# --- the book of calls ----------------------------------------------------------------------------------------------------

reports = st.builds(
    ToolReport,
    st.sampled_from(list(ReportKind)),
    st.just("s"),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["bash", "read"]),
    remaining_seconds=st.none() | st.floats(0, 100),
    fraction_done=st.none() | st.floats(0, 1),
    duration_seconds=st.none() | st.floats(0, 100),
    must_be_known=st.booleans(),
)
steps = st.lists(
    st.tuples(st.sampled_from(["s", "t", "u"]), reports, st.none() | st.sampled_from([0.0, 5.0, 9.0])),
    max_size=60,
)


@given(steps)
@settings(max_examples=200)
def test_the_book_counts_what_it_holds_and_takes_a_report_once(
    steps: list[tuple[str, ToolReport, float | None]],
) -> None:
    book = CallBook(calls_max=6)
    for now, (session, report, phase) in enumerate(steps):
        before = {call.id: call.ended_at for call in book.all_of(session)}
        with suppress(ConflictError, UnknownCallError, TooManyCallsError):
            call = book.note(session, report, phase, float(now))
            if call is not None and report.kind is ReportKind.END:
                assert call.ended_at == now
                assert book.note(session, report, phase, now + 0.5) is None, "sent again"
            if call is None:
                assert {c.id: c.ended_at for c in book.all_of(session)} == before
        assert len(book) == sum(len(book.all_of(name)) for name in "stu") <= 6


def test_the_longest_unheard_session_makes_room() -> None:
    book = CallBook(calls_max=100)
    for number in range(200):
        book.note(f"s{number}", ToolReport(ReportKind.START, "", "c", "bash"), 0.0, 0.0)
    assert len(book) == 100
    assert not book.all_of("s99")
    assert book.all_of("s100")
    book.forget("s100")
    book.forget("s100")
    assert len(book) == 99
