"""Our own format: JSON lines, one session a line, with the fields of `tao.traces.model`.

Reading streams: one session is in memory at a time. It must not know other formats.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tao.traces.errors import BadLine, OnBadLine
from tao.traces.lines import hint_of, numbered_lines
from tao.traces.model import TraceSession


class NativeReader:
    """Sessions in file order."""

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        decoder = msgspec.json.Decoder(TraceSession)
        for number, line in numbered_lines(path):
            try:
                session = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                on_bad_line(BadLine(str(path), number, f"not a session: {error}{hint_of(line)}"))
                continue
            yield number, session
