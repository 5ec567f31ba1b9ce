"""Writes our own format: one session a line. It must not know other formats.

Lossless: what is written is read again as equal sessions.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tao.traces.errors import TraceError
from tao.traces.lines import open_output
from tao.traces.model import TraceSession


def write_native(path: Path | str, sessions: Iterable[TraceSession]) -> int:
    """Gzip if the name ends in `.gz`."""
    encoder = msgspec.json.Encoder()
    count = 0
    with open_output(Path(path)) as stream:
        for session in sessions:
            stream.write(encoder.encode(session) + b"\n")
            count += 1
    return count


class NativeFile:
    """A file that grows by one session at a time and is a whole trace after each, whenever its writer dies.

    Gzip if the name ends in `.gz`, each session a member of its own. A file that is there already is refused: its ids
    might come again, and it is somebody's recording; but not an empty one, which a writer that was killed has left.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file. Raises TraceError."""
        self._path = path
        self._is_empty = True
        self._packed = path.suffix == ".gz"
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = path.open("wb" if _is_left_empty(path) else "xb")
        except FileExistsError as error:
            raise TraceError(f"{path}: is there already; name another file, or remove it first") from error
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error

    def write(self, session: TraceSession) -> None:
        """Raises OSError."""
        line = self._encoder.encode(session) + b"\n"
        self._file.write(gzip.compress(line, 6, mtime=0) if self._packed else line)
        self._file.flush()
        self._is_empty = False

    def close(self) -> None:
        """A file that got nothing is removed, since it would only be in the way. Raises OSError."""
        self._file.close()
        if self._is_empty:
            self._path.unlink(missing_ok=True)


def _is_left_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0
