"""Our own format: JSON lines, one session a line, with the fields of `tao.traces.model`.

Reading streams: one session is in memory at a time, beside the ids seen so far. It must not know other
formats.
"""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import msgspec

from tao.traces.errors import BadLine, OnBadLine, TraceError, refuse
from tao.traces.lines import numbered_lines
from tao.traces.model import TraceSession


def read_native(path: Path | str, *, on_bad_line: OnBadLine = refuse) -> Iterator[TraceSession]:
    """Yield the sessions of a `.jsonl` or `.jsonl.gz` file in file order.

    Raises TraceError for a file that cannot be read and, by default, for the first bad line: not JSON, a
    field missing or out of range, or a session id used before.
    """
    path = Path(path)
    decoder = msgspec.json.Decoder(TraceSession)
    line_of_id: dict[str, int] = {}
    for number, line in numbered_lines(path):
        try:
            session = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            on_bad_line(BadLine(str(path), number, f"not a session: {error}"))
            continue
        if session.session_id in line_of_id:
            first = line_of_id[session.session_id]
            on_bad_line(
                BadLine(str(path), number, f"session id {session.session_id!r} is also on line {first}")
            )
            continue
        line_of_id[session.session_id] = number
        yield session


def write_native(path: Path | str, sessions: Iterable[TraceSession]) -> int:
    """Write sessions, gzip if the name ends in `.gz` (the same bytes each time), and return their number."""
    encoder = msgspec.json.Encoder()
    count = 0
    with open_output(Path(path)) as stream:
        for session in sessions:
            stream.write(encoder.encode(session) + b"\n")
            count += 1
    return count


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open for writing; a gzip carries neither its name nor the time, so that equal content is equal bytes."""
    try:
        stream = path.open("wb")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error
    with stream:
        if path.suffix != ".gz":
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=stream, mtime=0) as packed:
            yield cast("IO[bytes]", packed)
