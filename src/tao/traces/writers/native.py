"""Writes our own format: one session a line. It must not know other formats.

Lossless: what is written is read again as equal sessions.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

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
