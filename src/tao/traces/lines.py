"""Files as streams of numbered lines, plain or gzip, in bounded memory.

It turns everything that can be wrong with a file itself (missing, a folder, broken compression, an endless
line) into a TraceError that names it. It must not know what a line means.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from tao.traces.errors import TraceError

LINE_BYTES_MAX = 256 * 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"


def open_trace(path: Path) -> IO[bytes]:
    """Open for reading; compression is recognised by content, not by name."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    head = stream.read(2)
    stream.seek(0)
    if head == GZIP_MAGIC:
        return cast("IO[bytes]", io.BufferedReader(_OwningGzip(stream), 1 << 18))
    return stream


class _OwningGzip(gzip.GzipFile):
    """A gzip reader that closes the file beneath it."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._beneath = stream

    def close(self) -> None:
        super().close()
        self._beneath.close()


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line) of each line that is not blank."""
    with open_trace(path) as stream:
        number = 0
        while True:
            number += 1
            try:
                line = stream.readline(LINE_BYTES_MAX + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise TraceError(f"{path}:{number}: the file is damaged: {error}") from error
            if not line:
                return
            if len(line) > LINE_BYTES_MAX:
                raise TraceError(
                    f"{path}:{number}: line longer than {LINE_BYTES_MAX} bytes; is this JSON lines?"
                )
            line = line.strip()
            if line:
                yield number, line
