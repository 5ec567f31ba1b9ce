"""Does a recorded run still come out the same? Its events through a fresh core, command by command.

The plans are in the log as events, so no planner is needed and no clock: a difference means that the core or the policy
decides otherwise than when the log was made. This file must not know how a log is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import Command, Interruption, InterruptSession
from tao.core.ports import Policy
from tao.record.log import Entry


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of the log, and the commands that it led to now."""

    recorded: Entry
    replayed: tuple[Command, ...]

    def __str__(self) -> str:
        told = [f"line {self.recorded.line}: {self.recorded.event!r}"]
        told += [f"  then {command!r}" for command in self.recorded.commands if command not in self.replayed]
        told += [f"  now  {command!r}" for command in self.replayed if command not in self.recorded.commands]
        return "\n".join(told if len(told) > 1 else [*told, "  the same commands in another order"])


def replay_log(
    entries: Iterable[Entry], policy: Policy, settings: SchedulerSettings, differences_max: int = 10
) -> list[Difference]:
    """Feed the recorded events to a fresh core; the entries whose commands differ, at most `differences_max`.

    After the first difference the states are no longer the same, so that one matters most. Older logs do not tell who gave
    way at the end of a turn; that is no difference.
    """
    scheduler = Scheduler(policy, settings)
    differences: list[Difference] = []
    for entry in entries:
        commands = tuple(scheduler.handle(entry.event))
        if commands != entry.commands and _once_told(commands) != entry.commands:
            differences.append(Difference(entry, commands))
            if len(differences) >= differences_max:
                break
    return differences


def _once_told(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """Without those that older logs lack: they ask nothing of a driver, and what was decided shows in what follows."""
    return tuple(
        command
        for command in commands
        if not (isinstance(command, InterruptSession) and command.reason is Interruption.GAVE_WAY)
    )
