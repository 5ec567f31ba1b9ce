"""What a source of replicas is: `ReplicaSource`, and the value it tells, `Wanted`.

It must not know how a source finds its replicas, nor what becomes of them.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec

from tao.engines.slots import SLOTS_MAX

Slots = Annotated[int, msgspec.Meta(ge=1, le=SLOTS_MAX)]
"""How many sessions a replica takes at once, as a file or an operator may say it of one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A replica that should be there. `draining`: it finishes what runs and gets nothing new. `slots`: how many sessions it
    takes at once; None: the source does not say.
    """

    url: str
    draining: bool = False
    slots: int | None = None


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
