"""Server-sent events, read incrementally from bytes split anywhere.

The parser serves observation only: the proxy forwards the original bytes whatever happens here. So every
buffer is bounded, and a line or event beyond the bound is skipped, never an error. The result does not depend
on where the bytes were split. Source: WHATWG HTML, section 9.2.6. It must not know JSON, dialects or HTTP.
"""

from typing import NamedTuple

LINE_BYTES_MAX = 1 << 20
END_BYTES_MAX = 4
"""Of what ends an event: two ends of lines."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event; `name` is empty where the stream named none."""

    name: bytes
    data: bytes


def ends_event(tail: bytes) -> bool:
    """Whether a stream whose last `END_BYTES_MAX` bytes are these has come to the end of an event."""
    return tail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").endswith(b"\n\n")


class SseParser:
    """Turns chunks into events; `close` flushes an event whose final blank line is missing."""

    __slots__ = (
        "_at_start",
        "_data",
        "_data_bytes",
        "_event_bytes_max",
        "_event_name",
        "_pending",
        "_skip_lf",
        "_skip_line",
        "skipped_lines",
    )

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        if line_bytes_max < len(_BOM):
            raise ValueError(f"line_bytes_max must be at least {len(_BOM)}, got {line_bytes_max}")
        self._event_bytes_max = line_bytes_max
        self._pending = bytearray()
        self._skip_line = False
        self._skip_lf = False
        self._at_start = True
        self._event_name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self.skipped_lines = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes."""
        events: list[SseEvent] = []
        if self.between_events and b"\r" not in chunk and not chunk.startswith(_BOM[:1]):
            chunk = self._whole_events(chunk, events)
            if not chunk:
                return events
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        self._lines(lines, events)
        self._hold(rest)
        return events

    @property
    def between_events(self) -> bool:
        """Whether the next byte begins an event."""
        return not (self._pending or self._data or self._event_name or self._skip_line or self._skip_lf)

    def first(self, chunk: bytes) -> tuple[SseEvent | None, bytes]:
        """The event of one line that `chunk` begins with, and the rest; None where `feed` has to look."""
        block, blank, rest = chunk.partition(b"\n\n")
        plain = blank and block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block
        if not plain or len(block) > self._event_bytes_max or not self.between_events:
            return None, chunk
        self._at_start = False
        return SseEvent(b"", block[6:]), rest

    def close(self) -> list[SseEvent]:
        """The last event, where the stream ended without the blank line that dispatches it."""
        last = self._complete(b"")
        events = [] if last is None else [self._line(last)]
        events.append(self._dispatch())
        return [event for event in events if event is not None]

    def _whole_events(self, chunk: bytes, events: list[SseEvent]) -> bytes:
        """The common case by far, done with little work: events of one line each. Returns what is left over."""
        blocks, blank, rest = chunk.rpartition(b"\n\n")
        self._at_start = self._at_start and not chunk
        for block in blocks.split(b"\n\n") if blank else ():
            if block.startswith(b"data: ") and b"\n" not in block and len(block) <= self._event_bytes_max:
                events.append(SseEvent(b"", block[6:]))
            else:
                self._lines([*block.split(b"\n"), b""], events)
        return rest

    def _lines(self, lines: list[bytes], events: list[SseEvent]) -> None:
        for line in lines:
            complete = self._complete(line)
            if complete is not None and (event := self._line(complete)) is not None:
                events.append(event)

    def _hold(self, rest: bytes) -> None:
        if self._skip_line:
            return
        self._pending += rest
        if len(self._pending) > self._event_bytes_max:
            self._pending = bytearray()
            self._skip_line = True

    def _complete(self, line: bytes) -> bytes | None:
        """The whole line that ends with `line`, or None where it was too long."""
        if self._skip_line or len(self._pending) + len(line) > self._event_bytes_max:
            self._skip_line = False
            self._pending = bytearray()
            self._at_start = False
            self.skipped_lines += 1
            return None
        if self._pending:
            line = bytes(self._pending) + line
            self._pending = bytearray()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line

    def _line(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data_bytes += len(value) + 1
            if self._data_bytes <= 2 * self._event_bytes_max:
                self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._event_name = value.removeprefix(b" ")
        return None

    def _dispatch(self) -> SseEvent | None:
        data, size, name = self._data, self._data_bytes, self._event_name
        self._data, self._data_bytes, self._event_name = [], 0, b""
        if not data or size > 2 * self._event_bytes_max:
            return None
        return SseEvent(name, data[0] if len(data) == 1 else b"\n".join(data))
