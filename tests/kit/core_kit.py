"""A scheduler with a clock in the hand: short arrange steps, and the invariants checked after every event."""

from typing import TypeVar

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import Command
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    ReplicaJoined,
    SessionEnded,
    ToolCall,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnStopped,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import Policy
from tao.core.session import Session

C = TypeVar("C", bound=Command)


class World:
    """Drives a `Scheduler` by hand. Every method returns the commands of its event and keeps all of them in `log`."""

    def __init__(self, policy: Policy, settings: SchedulerSettings | None = None, **capacities: int) -> None:
        self.scheduler = Scheduler(policy, settings)
        self.at = 0.0
        self.log: list[Command] = []
        for replica, capacity_tokens in capacities.items():
            self.send(ReplicaJoined(self.at, ReplicaId(replica), capacity_tokens))

    def send(self, event: Event) -> list[Command]:
        commands = self.scheduler.handle(event)
        self.scheduler.check_invariants()
        self.log += commands
        return commands

    def after(self, seconds: float) -> "World":
        self.at += seconds
        return self

    def arrive(
        self, session: str, turn: str, prompt_tokens: int = 1000, kind: TurnKind = TurnKind.MAIN
    ) -> list[Command]:
        return self.send(TurnArrived(self.at, TurnId(turn), SessionId(session), prompt_tokens, kind))

    def first_token(self, turn: str) -> list[Command]:
        return self.send(FirstToken(self.at, TurnId(turn)))

    def finish(
        self,
        turn: str,
        prompt_tokens: int = 1000,
        output_tokens: int = 100,
        cached_tokens: int | None = 0,
        tools: tuple[str, ...] = ("bash",),
    ) -> list[Command]:
        usage = Usage(prompt_tokens, output_tokens, cached_tokens)
        calls = tuple(ToolCall(name) for name in tools)
        return self.send(TurnFinished(self.at, TurnId(turn), usage, calls))

    def fail(self, turn: str, cause: str = "500", *, retryable: bool = False) -> list[Command]:
        return self.send(TurnFailed(self.at, TurnId(turn), cause, retryable))

    def leave(self, turn: str) -> list[Command]:
        return self.send(ClientLeft(self.at, TurnId(turn)))

    def stopped(self, turn: str) -> list[Command]:
        return self.send(TurnStopped(self.at, TurnId(turn)))

    def end(self, session: str) -> list[Command]:
        return self.send(SessionEnded(self.at, SessionId(session)))

    def wake(self) -> list[Command]:
        return self.send(WakeUp(self.at))

    def session(self, session: str) -> Session:
        return self.scheduler.view.sessions[SessionId(session)]

    def free(self, replica: str) -> int:
        return self.scheduler.view.free_tokens(ReplicaId(replica))


def of_kind(commands: list[Command], kind: type[C]) -> list[C]:
    """The commands of one kind, in order."""
    return [command for command in commands if isinstance(command, kind)]
