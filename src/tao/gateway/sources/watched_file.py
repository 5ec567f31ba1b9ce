"""Replicas from a TOML or JSON file that is read again whenever it changes.

The file is looked at every period: its content counts, not its time stamp, so that a link that is set to another file
(as Kubernetes does with mounted maps) is noticed too. A part of a file can make sense by itself, so a change counts when two
looks in a row have seen the same. A file that cannot be read or makes no sense is logged once, and the last good list stays.
"""

import asyncio
import os
import stat
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from tao.gateway.sources.addresses import AddressError, check_address, replica_name
from tao.gateway.sources.port import Slots, Wanted
from tao.gateway.wire.lenient import MALFORMED_JSON

FILE_BYTES_MAX = 4 << 20
_FORM = 'replicas = ["http://host:8000", {url = "http://other:8000", slots = 64}]'


class ReplicaFileError(ValueError):
    """The file cannot be read, or is not a list of replicas; the message names the file and what is wrong."""


class WatchedFile:
    """Implements `ReplicaSource`. TOML unless the name ends in `.json`; both hold a list called `replicas`."""

    def __init__(self, path: Path, period_seconds: float) -> None:
        self.name = f"file {path}"
        self.problem: str | None = None
        self._path = path
        self._period_seconds = period_seconds
        self._log = structlog.get_logger("tao.replicas")

    async def desired(self) -> AsyncIterator[tuple[Wanted, ...]]:
        """See `ReplicaSource.desired`."""
        last: tuple[Wanted, ...] | None = None
        seen: tuple[Wanted, ...] | None = None  # by the look before
        while True:
            before, seen = seen, None
            try:
                seen = await asyncio.to_thread(self.read)
            except ReplicaFileError as error:
                if str(error) != self.problem:
                    self._log.error(
                        "the file of replicas is not used; the last good list stays", problem=str(error)
                    )
                self.problem = str(error)
            else:
                self.problem = None
                if seen != last and (last is None or seen == before):  # a first list can drain nobody
                    last = seen
                    yield seen
            await asyncio.sleep(self._period_seconds)

    def read(self) -> tuple[Wanted, ...]:
        """What the file says now. Raises `ReplicaFileError`."""
        try:
            with open(self._path, "rb", opener=_never_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ReplicaFileError(f"{self._path}: is no regular file")
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ReplicaFileError(f"{self._path}: cannot be read: {error.strerror or error}") from None
        if len(content) > FILE_BYTES_MAX:
            raise ReplicaFileError(
                f"{self._path}: more than {FILE_BYTES_MAX} bytes; this is no list of replicas"
            )
        try:
            return _replicas(_parsed(content, self._path.suffix))
        except (*MALFORMED_JSON, ValueError) as error:
            raise ReplicaFileError(f"{self._path}: {error}") from None


def _never_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to would keep its reader for ever, and the process from ending."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(content: bytes, suffix: str) -> Any:
    if suffix == ".json":
        return msgspec.json.decode(content)
    return tomllib.loads(content.decode("utf-8"))


def _replicas(document: Any) -> tuple[Wanted, ...]:
    if (
        not isinstance(document, dict)
        or set(document) != {"replicas"}
        or not isinstance(document["replicas"], list)
    ):
        raise ValueError(f"needs one list named 'replicas' and nothing else, as in: {_FORM}")
    wanted: dict[str, Wanted] = {}
    for entry in document["replicas"]:
        replica = _wanted(entry)
        name = replica_name(replica.url)
        if name in wanted:
            raise ValueError(f"a replica is named twice: {wanted[name].url!r} and {replica.url!r}")
        wanted[name] = replica
    return tuple(wanted.values())


def _wanted(entry: Any) -> Wanted:
    if isinstance(entry, str):
        entry = {"url": entry}
    try:
        replica = msgspec.convert(entry, _Entry)
        check_address(replica.url)
    except (msgspec.ValidationError, AddressError) as error:
        raise ValueError(f"replica {entry!r}: {error}") from None
    return Wanted(replica.url, replica.draining, replica.slots)


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    draining: bool = False
    slots: Slots | None = None
