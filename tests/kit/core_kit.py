"""A scheduler with a clock in the hand: short arrange steps, and the invariants checked after every event."""

from typing import TypeVar

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import Command, ComputePlan
from tao.core.events import (
    CacheFlushed,
    CacheWatchLost,
    CapacityChanged,
    ClientLeft,
    Event,
    FirstToken,
    PlanReady,
    PrefixNode,
    PrefixObserved,
    ReplicaDraining,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
    SessionEnded,
    ToolBegan,
    ToolCall,
    ToolExpected,
    ToolFinished,
    ToolsMeasured,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnProgress,
    TurnStopped,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import Policy
from tao.core.session import Session
from tao.planning import solve
from tao.policies import assignments_of, problem_of

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

    # --- turns ------------------------------------------------------------------------------------------------------

    def arrive(
        self,
        session: str,
        turn: str,
        prompt_tokens: int = 1000,
        kind: TurnKind = TurnKind.MAIN,
        *,
        pinned: str | None = None,
        parent: str | None = None,
        model: str = "",
        shared_prefix: tuple[PrefixNode, ...] = (),
    ) -> list[Command]:
        return self.send(
            TurnArrived(
                self.at,
                TurnId(turn),
                SessionId(session),
                prompt_tokens,
                kind,
                parent=SessionId(parent) if parent is not None else None,
                pinned=ReplicaId(pinned) if pinned is not None else None,
                model=model,
                shared_prefix=shared_prefix,
            )
        )

    def first_token(self, turn: str) -> list[Command]:
        return self.send(FirstToken(self.at, TurnId(turn)))

    def progress(self, turn: str, output_tokens: int) -> list[Command]:
        return self.send(TurnProgress(self.at, TurnId(turn), output_tokens))

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

    def finish_untold(self, turn: str) -> list[Command]:
        """The turn finishes and nobody reports its usage."""
        return self.send(TurnFinished(self.at, TurnId(turn)))

    def fail(self, turn: str, cause: str = "500", *, retryable: bool = False) -> list[Command]:
        return self.send(TurnFailed(self.at, TurnId(turn), cause, retryable))

    def leave(self, turn: str) -> list[Command]:
        return self.send(ClientLeft(self.at, TurnId(turn)))

    def stopped(self, turn: str) -> list[Command]:
        return self.send(TurnStopped(self.at, TurnId(turn)))

    # --- sessions ---------------------------------------------------------------------------------------------------

    def tool_finished(self, session: str) -> list[Command]:
        return self.send(ToolFinished(self.at, SessionId(session)))

    def tool_expected(self, session: str, in_seconds: float) -> list[Command]:
        return self.send(ToolExpected(self.at, SessionId(session), self.at + in_seconds))

    def tool_began(self, session: str, name: str) -> list[Command]:
        return self.send(ToolBegan(self.at, SessionId(session), ToolCall(name)))

    def measured(self, session: str, **seconds: float) -> list[Command]:
        return self.send(ToolsMeasured(self.at, SessionId(session), tuple(seconds.items())))

    def end(self, session: str) -> list[Command]:
        return self.send(SessionEnded(self.at, SessionId(session)))

    # --- replicas ---------------------------------------------------------------------------------------------------

    def join(
        self, replica: str, capacity_tokens: int, models: tuple[str, ...] | None = None
    ) -> list[Command]:
        return self.send(ReplicaJoined(self.at, ReplicaId(replica), capacity_tokens, models=models))

    def resize(self, replica: str, capacity_tokens: int) -> list[Command]:
        return self.send(CapacityChanged(self.at, ReplicaId(replica), capacity_tokens))

    def drain(self, replica: str) -> list[Command]:
        return self.send(ReplicaDraining(self.at, ReplicaId(replica)))

    def lose(self, replica: str) -> list[Command]:
        return self.send(ReplicaLost(self.at, ReplicaId(replica)))

    def remove(self, replica: str) -> list[Command]:
        return self.send(ReplicaRemoved(self.at, ReplicaId(replica)))

    def flush(self, replica: str) -> list[Command]:
        return self.send(CacheFlushed(self.at, ReplicaId(replica)))

    def watch(self, replica: str, session: str, tokens: int) -> list[Command]:
        """KV events tell that this much of the session is in the replica's cache."""
        return self.send(PrefixObserved(self.at, ReplicaId(replica), SessionId(session), tokens))

    def lose_watch(self, replica: str, session: str | None = None) -> list[Command]:
        of = None if session is None else SessionId(session)
        return self.send(CacheWatchLost(self.at, ReplicaId(replica), of))

    # --- time and plans ---------------------------------------------------------------------------------------------

    def wake(self) -> list[Command]:
        return self.send(WakeUp(self.at))

    def solve(self, compute: ComputePlan) -> list[Command]:
        """Answer a `ComputePlan` with the real planner."""
        answer = solve(problem_of(compute.request), compute.request.solver)
        assignments = assignments_of(compute.request, answer.assignment)
        return self.send(PlanReady(self.at, compute.plan, assignments, answer.solver, answer.status))

    def answer(self, compute: ComputePlan, *assignments: tuple[str, str]) -> list[Command]:
        """Answer a `ComputePlan` with these (session, replica) pairs."""
        pairs = tuple((SessionId(session), ReplicaId(replica)) for session, replica in assignments)
        return self.send(PlanReady(self.at, compute.plan, pairs))

    def run_for(self, seconds: float) -> None:
        """Let time pass: the core is woken whenever it asks, and its plans are solved at once."""
        end = self.at + seconds
        while (due := self.scheduler.next_wakeup()) is not None and due <= end:
            self.at = max(self.at, due)
            for compute in of_kind(self.wake(), ComputePlan):
                self.solve(compute)
        self.at = end

    # --- what is so -------------------------------------------------------------------------------------------------

    def knows(self, session: str) -> bool:
        return SessionId(session) in self.scheduler.view.sessions

    def session(self, session: str) -> Session:
        return self.scheduler.view.sessions[SessionId(session)]

    def free(self, replica: str) -> int:
        return self.scheduler.view.free_tokens(ReplicaId(replica))

    def reserved(self, replica: str) -> int:
        return self.scheduler.view.replicas[ReplicaId(replica)].capacity_tokens - self.free(replica)

    @property
    def ignored(self) -> dict[str, int]:
        counts = self.scheduler.snapshot()["ignored"]
        assert isinstance(counts, dict)
        return counts


def of_kind(commands: list[Command], kind: type[C]) -> list[C]:
    """The commands of one kind, in order."""
    return [command for command in commands if isinstance(command, kind)]
