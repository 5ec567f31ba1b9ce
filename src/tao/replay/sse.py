"""Server-sent events out of bytes that arrive in any pieces: the data of each event, and the comments
between.

Pure. It must not know what data and comments mean.
"""

EVENT_BYTES_MAX = 16 * 1024 * 1024


class EventTooLong(ValueError):  # noqa: N818 - it names what happened
    """The stream sent EVENT_BYTES_MAX bytes without ending an event."""


class EventReader:
    """Feed bytes, get the data of the events that they complete. Fields other than data are skipped.

    `comments` has the comment lines of the last feed, without their colon.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self.comments: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that ended in `piece`; raises EventTooLong."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events: list[bytes] = []
        self.comments = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b":"):
                self.comments.append(line[1:].strip())
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        if len(self._rest) + sum(map(len, self._data)) > EVENT_BYTES_MAX:
            raise EventTooLong(f"an event is longer than {EVENT_BYTES_MAX} bytes")
        return events

    def close(self) -> list[bytes]:
        """The data of an event that the end of the stream completes."""
        return self.feed(b"\n\n")
