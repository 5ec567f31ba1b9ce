"""The log of a run: each event with the commands it led to, as JSON lines. From it everything else can be told.

The first line says what was run: version, policy, settings. Every other one is
`{"event": {KIND: {...}}, "commands": [{KIND: {...}}]}` with the field names of `tao.core.events` and `tao.core.commands`,
without `commands` where there are none. What was written is read back equal. This file must not know who records, where
the log is kept, or what it is read for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import msgspec

from tao import __version__
from tao.core import SchedulerSettings
from tao.core import commands as cmd
from tao.core import events as ev

T = TypeVar("T")

FORMAT = 1
"""Grows when an older reader could not read a log."""

BUFFER_BYTES = 1 << 16
"""What a writer keeps back before it writes to its file."""

EVENT_KINDS: Mapping[str, type[ev.Event]] = {
    kind.__name__: kind
    for kind in (
        ev.TurnArrived,
        ev.FirstToken,
        ev.TurnProgress,
        ev.TurnFinished,
        ev.TurnFailed,
        ev.ClientLeft,
        ev.TurnStopped,
        ev.ToolFinished,
        ev.ToolExpected,
        ev.ToolBegan,
        ev.ToolsMeasured,
        ev.SessionEnded,
        ev.ReplicaJoined,
        ev.CapacityChanged,
        ev.ModelsChanged,
        ev.ReplicaDraining,
        ev.ReplicaLost,
        ev.ReplicaRemoved,
        ev.CacheFlushed,
        ev.PrefixObserved,
        ev.CacheWatchLost,
        ev.WakeUp,
        ev.PlanReady,
        ev.PlanFailed,
        ev.ShutdownStarted,
        ev.WeightsUpdateBegan,
        ev.WeightsUpdateEnded,
    )
}
COMMAND_KINDS: Mapping[str, type[cmd.Command]] = {
    kind.__name__: kind
    for kind in (
        cmd.DispatchTurn,
        cmd.RefuseTurn,
        cmd.StopTurn,
        cmd.ComputePlan,
        cmd.AdmitSession,
        cmd.InterruptSession,
        cmd.CloseSession,
    )
}


class LogError(ValueError):
    """A log that cannot be read; the message names the file, the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: what happened, and what the core said. `line` counts from 1; the first entry is on line 2."""

    line: int
    event: ev.Event
    commands: tuple[cmd.Command, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A log on disk. Its entries are read anew at each iteration, line by line, in bounded memory.

    Iterating raises `LogError` at the first line that is no entry.
    """

    path: Path
    policy: str
    settings: SchedulerSettings
    version: str

    def __iter__(self) -> Iterator[Entry]:
        decoder = _EntryDecoder(self.path)
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if number > 1:
                    yield decoder.entry(number, line)


class LogWriter:
    """Writes a log as it happens, an observer of a driver. Keeps back about `BUFFER_BYTES` at most, always whole lines: so
    a writer that is killed leaves a log that can be read to its end.
    """

    def __init__(self, target: Path | BinaryIO, policy: str, settings: SchedulerSettings) -> None:
        """`target`: a path is opened, and closed by `close`; a binary file stays the caller's. Raises `OSError`."""
        self._owns_file = isinstance(target, Path)
        self._file: BinaryIO | FileIO = FileIO(target, "wb") if isinstance(target, Path) else target
        self._kept_back = bytearray()
        self._encode = msgspec.json.Encoder().encode
        header = {"log": FORMAT, "tao": __version__, "policy": policy, "settings": asdict(settings)}
        self._kept_back += self._encode(header) + b"\n"

    def observe(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """Append one entry. Raises `OSError` where what was kept back cannot be written."""
        line: dict[str, object] = {"event": {type(event).__name__: event}}
        if commands:
            line["commands"] = [{type(command).__name__: command} for command in commands]
        self._kept_back += self._encode(line) + b"\n"
        if len(self._kept_back) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand over to the operating system what was kept back. Raises `OSError`; the next call goes on from there."""
        while self._kept_back:
            written = self._file.write(self._kept_back)
            del self._kept_back[:written]
        self._file.flush()

    def close(self) -> None:
        """Flush, and close the file that was opened here. Raises `OSError`; the file is closed all the same."""
        try:
            self.flush()
        finally:
            if self._owns_file:
                self._file.close()

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_log(path: Path) -> Recorded:
    """Open a log and read its first line. Raises `LogError` where that is not the head of a log this version reads."""
    try:
        with path.open("rb") as lines:
            first = lines.readline()
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}") from error
    try:
        head = msgspec.json.decode(first, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise LogError(
            f"{path}, line 1: {error}; a log begins with its version, policy and settings"
        ) from error
    if head.get("log") != FORMAT:
        raise LogError(f"{path}, line 1: not a log of format {FORMAT}: its `log` is {head.get('log')!r}")
    try:
        settings = SchedulerSettings(**head["settings"])
        return Recorded(path, str(head["policy"]), settings, str(head["tao"]))
    except KeyError as error:
        raise LogError(f"{path}, line 1: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise LogError(f"{path}, line 1: settings: {error}") from error


def command_digest(commands: Iterable[cmd.Command]) -> str:
    """SHA-256, in hexadecimal, of the commands as lines of a log: equal runs have equal digests."""
    digest = sha256()
    encode = msgspec.json.Encoder().encode
    for command in commands:
        digest.update(encode({type(command).__name__: command}) + b"\n")
    return digest.hexdigest()


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line with its parts still in JSON, by kind."""

    event: dict[str, msgspec.Raw]
    commands: list[dict[str, msgspec.Raw]] = []  # msgspec copies it


class _EntryDecoder:
    """Reads lines; one decoder for each kind of event and command."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = msgspec.json.Decoder(_Line)
        self._events = {name: msgspec.json.Decoder(kind) for name, kind in EVENT_KINDS.items()}
        self._commands = {name: msgspec.json.Decoder(kind) for name, kind in COMMAND_KINDS.items()}

    def entry(self, number: int, text: bytes) -> Entry:
        """The entry on a line, or `LogError`."""
        try:
            line = self._line.decode(text)
            event = _only(line.event, self._events, "event")
            commands = tuple(_only(command, self._commands, "command") for command in line.commands)
        except (msgspec.DecodeError, ValueError) as error:
            cut = "" if text.endswith(b"\n") else " (the line is cut short: was its writer killed?)"
            raise LogError(f"{self._path}, line {number}: {error}{cut}") from error
        return Entry(number, event, commands)


def _only(tagged: dict[str, msgspec.Raw], decoders: Mapping[str, msgspec.json.Decoder[T]], what: str) -> T:
    if len(tagged) != 1:
        raise ValueError(f"one kind of {what} is needed, not {sorted(tagged)}")
    [(name, fields)] = tagged.items()
    decoder = decoders.get(name)
    if decoder is None:
        raise ValueError(f"unknown {what} {name!r}; known are {', '.join(decoders)}")
    try:
        return decoder.decode(fields)
    except msgspec.DecodeError as error:
        raise ValueError(f"{name}: {error}") from error
