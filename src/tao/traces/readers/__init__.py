"""One reader a format. Each turns the files of its format into sessions, with the line where each began.

A reader is made anew for each trace and reads its files in order, so that it may link sessions across files
(a sub-agent's own file to its parent's). It must not know other formats, and it keeps no text.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tao.traces.errors import OnBadLine
from tao.traces.model import TraceSession


class Reader(Protocol):
    """Reads the files of one trace, one after another."""

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        """Yield (line number, session); bad lines go to `on_bad_line`, an unreadable file raises
        TraceError.
        """
        ...
