"""The event reader: any cut of the bytes gives the same events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.replay.sse import EventReader, EventTooLong

STREAM = (
    b": held\n\nid: 3\nevent: x\ndata: one\n\ndata:two\r\ndata:  more\r\n\r\n"
    b': again\n\n\n\ndata: {"a": 1}\n\ndata: [DONE]'
)
EVENTS = [b"one", b"two\n more", b'{"a": 1}', b"[DONE]"]
COMMENTS = [b"held", b"again"]


def read(pieces: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    reader = EventReader()
    events: list[bytes] = []
    comments: list[bytes] = []
    for piece in pieces:
        events += reader.feed(piece)
        comments += reader.comments
    return events + reader.close(), comments


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_cut_at_every_offset(cut: int) -> None:
    assert read([STREAM[:cut], STREAM[cut:]]) == (EVENTS, COMMENTS)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cut_anywhere(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in itertools.pairwise(places)]) == (EVENTS, COMMENTS)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    whole = read([data])
    assert read([data[i : i + 1] for i in range(len(data))]) == whole


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao.replay.sse.EVENT_BYTES_MAX", 100)
    reader = EventReader()
    for _ in range(9):
        reader.feed(b"data: 0123456789\n")
    with pytest.raises(EventTooLong):
        reader.feed(b"data: 0123456789ab\n")
