"""What a return predictor has learned, kept in one file from one start to the next.

JSON with a version and the predictor's name, written beside its place and moved there, so that a reader sees the old file or
the new one. A file that cannot be used is set aside, never overwritten; learning then starts afresh. It must not know
what a predictor learns.
"""

import contextlib
import os
import re
from errno import EINVAL, EISDIR
from pathlib import Path
from typing import Any

import msgspec

from tao.policies.returns import LearnedStateError, ReturnPredictor

FORMAT = "tao-learned-returns"
VERSION = 1
BYTES_MAX = 256 * 2**20
ASIDE_MAX = 5


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    predictor: str
    state: dict[str, Any]


def save_learned(path: Path, predictor: ReturnPredictor) -> None:
    """Write the state of a predictor to a file. Raises `OSError`; the old file then stays as it was."""
    write_learned(path, encode_learned(predictor.name, predictor.export_state()))


def encode_learned(predictor_name: str, state: dict[str, object]) -> bytes:
    """The content of the file: what a predictor of this name has exported."""
    return msgspec.json.encode(_Document(FORMAT, VERSION, predictor_name, state))


def write_learned(path: Path, content: bytes) -> None:
    """Write beside the path, then move there. Raises `OSError`."""
    beside = _beside(path)
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def check_place(path: Path) -> None:
    """Whether `write_learned` could write there, found out by doing so beside it. Raises `OSError` that names the path."""
    if path.is_dir():
        raise IsADirectoryError(EISDIR, "a folder; name a file in it", str(path))
    if path.exists() and not path.is_file():  # a device or a pipe: saving would put a file in its place
        raise OSError(EINVAL, "a device or a pipe; name a file", str(path))
    beside = _beside(path)
    try:
        beside.touch()
        beside.unlink()
    except OSError as error:
        raise type(error)(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def clear_away(path: Path) -> None:
    """Remove what writers of this file that were killed have left beside it. Never raises.

    Only files of the name that `write_learned` gives, of processes that are no more. One of this process's own number is
    left: the next save replaces it.
    """
    ours = re.compile(re.escape(f".{path.name}.") + r"([1-9][0-9]{0,9})\.tmp")
    with contextlib.suppress(OSError):
        for beside in sorted(path.parent.iterdir()):
            named = ours.fullmatch(beside.name)
            if named is not None and not _lives(int(named[1])):
                with contextlib.suppress(OSError):
                    beside.unlink()


def load_learned(path: Path, predictor: ReturnPredictor) -> str | None:
    """Take over what a file says; no file is nothing learned yet.

    Returns a message for the log where the file could not be used: the predictor is then as it was, and the file is set
    aside as `NAME.unusable-1` (to 5, then the last is replaced). Never raises for what a file holds.
    """
    try:
        content = _read(path)
        if content is None:
            return None
        predictor.import_state(_decoded(content, predictor.name))
    except (LearnedStateError, OSError) as error:
        return f"{path}: {error}; {_set_aside(path)}; learning starts afresh"
    return None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > BYTES_MAX:
            raise LearnedStateError(f"larger than {BYTES_MAX >> 20} MiB")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decoded(content: bytes, predictor_name: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LearnedStateError(f"not a learned state ({error})") from error
    if document.format != FORMAT or document.version != VERSION:
        raise LearnedStateError(
            f"format {document.format!r} version {document.version}, and this program reads {FORMAT!r} version {VERSION}"
        )
    if document.predictor != predictor_name:
        raise LearnedStateError(f"learned by {document.predictor!r}, not by {predictor_name!r}")
    return document.state


def _set_aside(path: Path) -> str:
    """Move the file out of the way; says where to."""
    names = [path.with_name(f"{path.name}.unusable-{number}") for number in range(1, ASIDE_MAX + 1)]
    aside = next((name for name in names if not name.exists()), names[-1])
    try:
        path.replace(aside)
    except OSError as error:
        return f"it could not be set aside ({error.strerror or error})"
    return f"set aside as {aside.name}"
