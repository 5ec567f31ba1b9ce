"""What a source of replicas is: `ReplicaSource`, and the value it tells, `Wanted`."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Wanted:
    """A replica that should be there. `draining`: it finishes what runs and gets nothing new."""

    url: str
    draining: bool = False


class ReplicaSource(Protocol):
    """Tells which replicas are wanted. Its outages are its own affair: it logs them, says so in `problem`, and goes on.

    `name` is unique among the sources of a gateway; people read it in `/v1/tao/replicas`.
    """

    @property
    def name(self) -> str: ...

    @property
    def problem(self) -> str | None:
        """Why the last set told may be out of date; None while all is well."""

    def desired(self) -> AsyncIterator[tuple[Wanted, ...]]:
        """Whole sets, the first as soon as one is known, then one whenever it has changed. Runs until cancelled."""
