"""Server-sent events out of bytes that arrive in any pieces: only what a chat stream needs, the data of each
event.

Pure. It must not know what the data means.
"""

EVENT_BYTES_MAX = 16 * 1024 * 1024


class EventTooLong(ValueError):  # noqa: N818 - it names what happened
    """The stream sent EVENT_BYTES_MAX bytes without ending an event."""


class EventReader:
    """Feed bytes, get the data of the events that they complete. Comments and other fields are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that ended in `piece`; raises EventTooLong."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events: list[bytes] = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        if len(self._rest) + sum(map(len, self._data)) > EVENT_BYTES_MAX:
            raise EventTooLong(f"an event is longer than {EVENT_BYTES_MAX} bytes")
        return events

    def close(self) -> list[bytes]:
        """The data of an event that the end of the stream completes."""
        return self.feed(b"\n\n")
