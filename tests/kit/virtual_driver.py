"""A driver in virtual time over an engine that takes a fixed time per token: whole runs of a policy in milliseconds.

It keeps the promises of a real driver: time never goes back, one timer, one plan at a time, one ending for each dispatched
turn. No queueing, no batching, no eviction: it tells how a policy admits, not how fast an engine is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import Command, ComputePlan, DispatchTurn, RefuseTurn, StopTurn
from tao.core.events import (
    Event,
    FirstToken,
    PlanReady,
    ReplicaJoined,
    ReplicaLost,
    SessionEnded,
    ToolCall,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnStopped,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import Policy
from tao.planning import solve
from tao.policies import assignments_of, problem_of

PREFILL_TOKENS_PER_SECOND = 20_000.0
DECODE_TOKENS_PER_SECOND = 50.0
EVENTS_MAX = 500_000


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """A prompt, an answer, and the tool that runs after it."""

    prompt_tokens: int
    output_tokens: int
    tool_seconds: float


@dataclass(frozen=True, slots=True)
class ScriptedSession:
    """Starts at `starts_at` and takes its turns one after the other. `says_goodbye`: it is released at its end."""

    id: str
    starts_at: float
    turns: tuple[ScriptedTurn, ...]
    says_goodbye: bool = True


@dataclass(slots=True)
class Run:
    """What happened: the log, and by turn how it was dispatched. `over`: when each session had its last answer."""

    log: list[tuple[Event, list[Command]]] = field(default_factory=list)
    dispatched: dict[TurnId, DispatchTurn] = field(default_factory=dict)
    refused: list[RefuseTurn] = field(default_factory=list)
    over: dict[str, float] = field(default_factory=dict)
    sessions_max: int = 0

    @property
    def commands(self) -> list[Command]:
        return [command for _, commands in self.log for command in commands]

    @property
    def holds(self) -> dict[TurnId, float]:
        """Turns that were held, with the seconds."""
        return {turn: d.hold_seconds for turn, d in self.dispatched.items() if d.hold_seconds > 0}


class VirtualDriver:
    """Runs scripted sessions over replicas of given capacities. `planning_seconds`: how long each plan takes."""

    def __init__(
        self,
        policy: Policy,
        capacities: Mapping[str, int],
        settings: SchedulerSettings | None = None,
        planning_seconds: float = 0.05,
    ) -> None:
        self.scheduler = Scheduler(policy, settings)
        self.run_so_far = Run()
        self.at = 0.0
        self._planning_seconds = planning_seconds
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self._armed: float | None = None
        self._turns: dict[TurnId, tuple[ScriptedSession, int]] = {}
        self._cached: dict[tuple[str, ReplicaId], int] = {}
        for name, capacity_tokens in capacities.items():
            self._feed(ReplicaJoined(0.0, ReplicaId(name), capacity_tokens))

    def at_time(self, at: float, action: Callable[[], object]) -> None:
        """Do something at a moment of the run."""
        heappush(self._heap, (at, next(self._number), action))

    def lose(self, at: float, replica: str, back_after: float, capacity_tokens: int) -> None:
        """The replica dies with all its turns, and comes back empty."""
        self.at_time(at, lambda: self._lose(ReplicaId(replica)))
        self.at_time(
            at + back_after, lambda: self._feed(ReplicaJoined(self.at, ReplicaId(replica), capacity_tokens))
        )

    def run(self, sessions: Sequence[ScriptedSession], seconds_max: float = 1e6) -> Run:
        """Play the sessions until nothing is left to happen."""
        for session in sessions:
            self.at_time(session.starts_at, lambda s=session: self._arrive(s, 0))  # type: ignore[misc]
        for _ in range(EVENTS_MAX):
            if not self._heap or self._heap[0][0] > seconds_max:
                return self.run_so_far
            self.at, _, action = heappop(self._heap)
            action()
        raise AssertionError(f"no end after {EVENTS_MAX} steps, at {self.at} s")

    # --- the driver ---------------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        commands = self.scheduler.handle(event)
        run = self.run_so_far
        run.log.append((event, commands))
        run.sessions_max = max(run.sessions_max, len(self.scheduler.view.sessions))
        for command in commands:
            self._execute(command)
        self._arm()

    def _arm(self) -> None:
        due = self.scheduler.next_wakeup()
        if due is not None and (self._armed is None or due < self._armed):
            self._armed = max(due, self.at)
            self.at_time(self._armed, self._wake)

    def _wake(self) -> None:
        self._armed = None
        self._feed(WakeUp(self.at))

    def _execute(self, command: Command) -> None:
        match command:
            case DispatchTurn():
                assert command.turn not in self.run_so_far.dispatched or command.attempt == 2
                self.run_so_far.dispatched[command.turn] = command
                self._start(command)
            case RefuseTurn():
                self.run_so_far.refused.append(command)
                session, _ = self._turns.pop(command.turn)
                self._end(session)
            case StopTurn():
                self._feed(TurnStopped(self.at, command.turn))
            case ComputePlan():
                answer = solve(problem_of(command.request), command.request.solver)
                pairs = assignments_of(command.request, answer.assignment)
                ready = PlanReady(
                    self.at + self._planning_seconds, command.plan, pairs, answer.solver, answer.status
                )
                self.at_time(ready.at, lambda: self._feed(ready))

    # --- clients, tools and engines -----------------------------------------------------------------------------------

    def _arrive(self, session: ScriptedSession, index: int) -> None:
        turn = TurnId(f"{session.id}/{index}")
        self._turns[turn] = (session, index)
        self._feed(TurnArrived(self.at, turn, SessionId(session.id), session.turns[index].prompt_tokens))

    def _start(self, sent: DispatchTurn) -> None:
        session, index = self._turns[sent.turn]
        script = session.turns[index]
        cached = min(self._cached.get((session.id, sent.replica), 0), script.prompt_tokens)
        first_at = self.at + (script.prompt_tokens - cached) / PREFILL_TOKENS_PER_SECOND
        last_at = first_at + script.output_tokens / DECODE_TOKENS_PER_SECOND
        self.at_time(first_at, lambda: self._if_on(sent, FirstToken(self.at, sent.turn)))
        self.at_time(last_at, lambda: self._finish(sent, session, index, cached))

    def _if_on(self, sent: DispatchTurn, event: Event) -> None:
        if sent.turn in self._turns and self.run_so_far.dispatched[sent.turn] is sent:
            self._feed(event)

    def _finish(self, sent: DispatchTurn, session: ScriptedSession, index: int, cached: int) -> None:
        if sent.turn not in self._turns or self.run_so_far.dispatched[sent.turn] is not sent:
            return  # it failed meanwhile
        del self._turns[sent.turn]
        script = session.turns[index]
        self._cached[session.id, sent.replica] = script.prompt_tokens + script.output_tokens
        usage = Usage(script.prompt_tokens, script.output_tokens, cached)
        last = index + 1 == len(session.turns)
        tools = () if last else (ToolCall("bash"),)
        self._feed(TurnFinished(self.at, sent.turn, usage, tools))
        if last:
            self._end(session)
        else:
            self.at_time(self.at + script.tool_seconds, lambda: self._arrive(session, index + 1))

    def _end(self, session: ScriptedSession) -> None:
        self.run_so_far.over[session.id] = self.at
        if session.says_goodbye:
            self._feed(SessionEnded(self.at, SessionId(session.id)))

    def _lose(self, replica: ReplicaId) -> None:
        self._cached = {key: tokens for key, tokens in self._cached.items() if key[1] != replica}
        self._feed(ReplicaLost(self.at, replica))
        broken = [
            turn
            for turn, record in self.scheduler.view.turns.items()
            if record.replica == replica and turn in self._turns
        ]
        for turn in broken:
            retryable = self.scheduler.view.turns[turn].first_token_at is None
            session, _ = self._turns[turn]
            if not retryable:
                del self._turns[turn]
            self._feed(TurnFailed(self.at, turn, "replica died", retryable))
            if not retryable:
                self._end(session)


def scripted_sessions(
    number: int, seed: int = 0, *, every_seconds: float = 1.0, turns_max: int = 6, tokens: int = 2_000
) -> list[ScriptedSession]:
    """Sessions that start one after the other; contexts begin at about `tokens` and grow by 300 to 900 a turn."""
    rng = Random(seed)
    sessions = []
    for n in range(number):
        context = rng.randint(tokens // 2, tokens * 3 // 2)
        turns = []
        for _ in range(rng.randint(1, turns_max)):
            output = rng.randint(20, 300)
            turns.append(ScriptedTurn(context, output, rng.choice([0.2, 1.0, 3.0, 12.0])))
            context += output + rng.randint(200, 600)
        sessions.append(ScriptedSession(f"s{n}", n * every_seconds, tuple(turns)))
    return sessions
