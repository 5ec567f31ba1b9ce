"""Files as streams of numbered lines or JSON documents, plain or gzip, in bounded memory; folders as their
files.

It turns everything that can be wrong with a file itself (missing, a folder, broken compression, an endless
line) into a TraceError that names it. It must not know what a line means.
"""

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import msgspec

from tao.traces.errors import TraceError

LINE_BYTES_MAX = 256 * 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
STANDARD_OUTPUT = Path("-")
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


def open_trace(path: Path) -> IO[bytes]:
    """Open for reading; compression is recognised by content, not by name."""
    if path.exists() and not path.is_file():
        raise TraceError(f"{path}: is no file; a trace is read more than once: write it to a file first")
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


def numbered_lines(path: Path) -> Generator[tuple[int, bytes]]:
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
            line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()
            if line:
                yield number, line


def hint_of(line: bytes) -> str:
    """What to do with a line that looks like the beginning of a JSON array, where one record a line is wanted."""
    return (
        "; one record a line is wanted, not an array: jq -c '.[]' makes lines of it"
        if line[:1] == b"["
        else ""
    )


def documents(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line, JSON text) of each document: the lines of JSON lines, or else the whole file as one
    document.

    A top-level array counts as its elements.
    """
    lines = numbered_lines(path)
    first = next(lines, None)
    if first is None:
        return
    if _is_json(first[1]):
        yield from _elements(*first)
        for number, line in lines:
            yield from _elements(number, line)
        return
    lines.close()
    with open_trace(path) as stream:
        try:
            whole = stream.read(LINE_BYTES_MAX + 1).removeprefix(codecs.BOM_UTF8)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(f"{path}: the file is damaged: {error}") from error
    if len(whole) > LINE_BYTES_MAX:
        raise TraceError(f"{path}: one JSON document of more than {LINE_BYTES_MAX} bytes")
    yield from _elements(first[0], whole)


def _elements(number: int, text: bytes) -> Iterator[tuple[int, bytes]]:
    if not text.lstrip().startswith(b"["):
        yield number, text
        return
    try:
        parts = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        yield number, text  # the reader says what is wrong with it
        return
    for part in parts:
        yield number, bytes(part)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def trace_files(path: Path) -> list[Path]:
    """The file itself, or the trace files below a folder, in a fixed order: sub-agents' own files come
    last.
    """
    if not path.is_dir():
        return [path]
    found = [file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file()]
    if not found:
        raise TraceError(f"{path}: the folder holds no {', '.join(SUFFIXES)} file")
    return sorted(found, key=lambda file: (file.name.startswith("agent-"), file.as_posix()))


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open for writing; `-` is the output; a gzip carries neither its name nor the time: equal content is equal bytes.

    A file appears, or is replaced, when all is written: what breaks off leaves what was there, and a file can be written
    from what is read out of it. Raises TraceError.
    """
    target = Path(os.path.realpath(path))
    try:
        if path == STANDARD_OUTPUT:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif target.exists() and not target.is_file():  # a device or a pipe is written as it is
            with target.open("wb") as stream:
                yield stream
        else:
            with _replacing(target, path.suffix == ".gz") as stream:
                yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _replacing(target: Path, packed: bool) -> Iterator[IO[bytes]]:
    beside = target.with_name(f".{target.name}.part")
    try:
        with beside.open("wb") as stream:
            if packed:
                with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=stream, mtime=0) as gz:
                    yield cast("IO[bytes]", gz)
            else:
                yield stream
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
