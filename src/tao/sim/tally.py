"""What the scheduler did in a run, counted from its commands.

It sees commands only, and knows nothing of policies or engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tao.core.commands import AdmitSession, CloseSession, Command, InterruptSession, Reason
from tao.core.events import Event
from tao.core.ids import ReplicaId, SessionId


@dataclass(frozen=True, slots=True)
class Counts:
    """`migrations`: admissions on another replica than the session's last. `forced_placements`: at the bound on waiting."""

    interrupts: int
    migrations: int
    forced_placements: int
    admissions: int


class Tally:
    """An observer that counts."""

    watches: frozenset[type[Event]] = frozenset()

    def __init__(self) -> None:
        self._interrupts = self._migrations = self._forced = self._admissions = 0
        self._last_on: dict[SessionId, ReplicaId] = {}

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(self._interrupts, self._migrations, self._forced, self._admissions)

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002
        for command in commands:
            match command:
                case AdmitSession():
                    self._admissions += 1
                    self._forced += command.reason is Reason.FORCED
                    self._migrations += self._last_on.get(command.session, command.replica) != command.replica
                    self._last_on[command.session] = command.replica
                case InterruptSession():
                    self._interrupts += 1
                case CloseSession():
                    self._last_on.pop(command.session, None)

    def end(self, at: float) -> None:
        """Nothing to do."""
