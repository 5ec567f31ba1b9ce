"""The SSE parser: the standard's rules, any split, bounded buffers."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tao.gateway.wire.sse import END_BYTES_MAX, SseEvent, SseParser, ends_event

LINE_BYTES_MAX = 24


def parse(chunks: list[bytes], line_bytes_max: int = 1 << 20) -> list[SseEvent]:
    parser = SseParser(line_bytes_max)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def test_events_with_names_comments_and_many_data_lines() -> None:
    stream = b'\xef\xbb\xbf: hello\nevent: ping\ndata: {"a":1}\n\ndata:x\ndata: y\nid: 7\n\nevent: lost\n\n'
    assert parse([stream]) == [SseEvent(b"ping", b'{"a":1}'), SseEvent(b"", b"x\ny")]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_at_every_split(ending: bytes) -> None:
    stream = ending.join([b"event: a", b"data: 1", b"", b": c", b"data: 2", b"", b""])
    expected = [SseEvent(b"a", b"1"), SseEvent(b"", b"2")]
    for split in range(len(stream) + 1):
        assert parse([stream[:split], stream[split:]]) == expected


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_where_an_event_ends_is_told_by_a_few_bytes(ending: bytes) -> None:
    event = ending.join([b"event: a", b"data: 1", b"", b""])
    stream = event * 2
    told = {end for end in range(len(stream) + 1) if ends_event(stream[:end][-END_BYTES_MAX:])}
    ends = {len(event), len(stream)}
    alone = {end - 1 for end in ends} if ending == b"\r\n" else set()  # a CR ends a line, whatever follows
    assert told == ends | alone


def test_an_event_without_its_last_blank_line_is_kept() -> None:
    assert parse([b"data: [DONE]"]) == [SseEvent(b"", b"[DONE]")]


def test_a_line_beyond_the_bound_is_skipped_and_the_rest_is_read() -> None:
    parser = SseParser(LINE_BYTES_MAX)
    events = parser.feed(b"data: " + b"x" * 100 + b"\n\ndata: ok\n\n")
    assert events == [SseEvent(b"", b"ok")]
    assert parser.skipped_lines == 1


def test_the_bound_must_be_sensible() -> None:
    with pytest.raises(ValueError, match="line_bytes_max"):
        SseParser(1)


pieces = st.sampled_from(
    [b"data:", b"data: ", b"event:", b":", b"\n", b"\r", b"\r\n", b"x", b"\xef\xbb\xbf", b"\xff"]
)


@given(st.lists(pieces | st.binary(max_size=30), max_size=30), st.lists(st.integers(0, 400), max_size=12))
@example([b"data: " + b"x" * 19], [3])
def test_splits_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(borders)]
    whole = parse([stream], LINE_BYTES_MAX)
    assert parse(chunks, LINE_BYTES_MAX) == whole
    assert parse([bytes([byte]) for byte in stream], LINE_BYTES_MAX) == whole
