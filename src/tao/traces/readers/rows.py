"""Formats with one request a line: rows of one session brought together, in bounded memory.

Two passes over a file. The first notes where each session has its last row; the second folds rows and yields
a session as soon as its last row is read, so that only the sessions open at that point are in memory (and of
their rows only what the fold keeps). It must not know any format.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tao.traces.errors import BadLine, OnBadLine
from tao.traces.lines import hint_of, numbered_lines
from tao.traces.model import TraceSession

Row = TypeVar("Row")
Row_contra = TypeVar("Row_contra", contravariant=True)


class SessionFold(Protocol[Row_contra]):
    """One session under construction."""

    def add(self, row: Row_contra) -> None:
        """Take the next row; raises ValueError that says what is wrong with it."""
        ...

    def session(self) -> TraceSession | None:
        """The session, None if no row was good."""
        ...


class _Key(msgspec.Struct):
    session_id: str | int | None = None


class RowReader(Generic[Row]):
    """Reads JSON lines of `row_type`; a row without `session_id` is a session of its own."""

    def __init__(self, row_type: type[Row], new_fold: Callable[[str], SessionFold[Row]]) -> None:
        self._decoder = msgspec.json.Decoder(row_type)
        self._new_fold = new_fold

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        key_at, closing = _last_rows(path)
        open_folds: dict[str, tuple[int, SessionFold[Row]]] = {}
        for number, line in numbered_lines(path):
            name = key_at(line) or f"line-{number}"
            try:
                row = self._decoder.decode(line)
                first, fold = open_folds.get(name) or (number, self._new_fold(name))
                fold.add(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
                on_bad_line(BadLine(str(path), number, f"{error}{hint_of(line)}"))
            else:
                open_folds[name] = (first, fold)
            if closing.get(name, number) == number and name in open_folds:
                first, fold = open_folds.pop(name)
                session = fold.session()
                if session is not None:
                    yield first, session


def _last_rows(path: Path) -> tuple[Callable[[bytes], str | None], dict[str, int]]:
    """How to find a line's session, and the number of the last line of each."""
    decoder = msgspec.json.Decoder(_Key)

    def session_of(line: bytes) -> str | None:
        try:
            key = decoder.decode(line).session_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return str(key) if key is not None and key != "" else None

    closing: dict[str, int] = {}
    for number, line in numbered_lines(path):
        name = session_of(line)
        if name is not None:
            closing[name] = number
    return session_of, closing
