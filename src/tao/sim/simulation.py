"""One run in virtual time: the core unchanged, engine models as replicas, recorded sessions as the load.

The simulation is a driver like the gateway's: it feeds events, executes commands, arms one timer. Planning takes virtual
time in proportion to the planner's work units, so that a run repeats exactly on any machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tao.core import Scheduler
from tao.core.commands import Command, ComputePlan, DispatchTurn, RefuseTurn
from tao.core.events import (
    Event,
    FirstToken,
    PlanReady,
    ReplicaJoined,
    SessionEnded,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.enginemodel import EngineModel, Finished, Request, RequestRefusedError
from tao.enginemodel import FirstToken as EngineFirstToken
from tao.planning import solve
from tao.policies import assignments_of, problem_of
from tao.record.measure import TurnMeasurement
from tao.sim.agenda import Agenda
from tao.sim.fleet import Fleet
from tao.sim.workload import Arrivals, PlayedSession, WorkloadSettings
from tao.traces.model import TraceSession

SECONDS_PER_WORK_UNIT = 1e-6
"""What the planner's unit of work costs in virtual time (see `tao.planning.Answer.work_units`)."""

Observer = Callable[[Event, Sequence[Command]], None]


@dataclass(slots=True)
class PlannerTotals:
    """All planning of a run, in virtual seconds."""

    plans: int = 0
    seconds: float = 0.0
    fallbacks: int = 0


@dataclass(slots=True)
class _Played:
    """A turn on its way."""

    session: PlayedSession
    request: Request
    arrived_at: float
    hold_seconds: float = 0.0
    first_token_at: float | None = None
    replica: ReplicaId | None = None


class Simulation:
    """`run()` plays all sessions and returns the turns in the order in which they ended."""

    def __init__(
        self,
        scheduler: Scheduler,
        engines: Mapping[ReplicaId, EngineModel],
        arrivals: Arrivals,
        settings: WorkloadSettings,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.scheduler = scheduler
        self.planner = PlannerTotals()
        self.measurements: list[TurnMeasurement] = []
        self.now = 0.0
        self._fleet = Fleet(engines.items())
        self._arrivals = arrivals
        self._settings = settings
        self._observers = tuple(observers)
        self._agenda = Agenda()
        self._turns: dict[TurnId, _Played] = {}

    def run(self) -> list[TurnMeasurement]:
        """Play to the end. Use once."""
        for replica in self._fleet.replicas:
            engine = self._fleet.engine(replica)
            capacity_tokens = engine.total_blocks * engine.profile.block_tokens
            self._feed(ReplicaJoined(0.0, replica, capacity_tokens))
        for at, trace in self._arrivals.first():
            self._start(at, trace)
        while self._step():
            pass
        return self.measurements

    def _step(self) -> bool:
        """Let the next thing happen: engines before the agenda before the core's timer, at equal times."""
        wakeup = self.scheduler.next_wakeup()
        wakeup_at = inf if wakeup is None else max(wakeup, self.now)
        engine_at, agenda_at = self._fleet.next_at, self._agenda.next_at
        self.now = min(engine_at, agenda_at, wakeup_at)
        if self.now == inf or (not self._turns and agenda_at == inf):
            return False
        if engine_at == self.now:
            self._engine_events()
        elif agenda_at == self.now:
            at, action = self._agenda.pop()
            action(at)
        else:
            self._feed(WakeUp(self.now))
        return True

    def _engine_events(self) -> None:
        for event in self._fleet.advance():
            turn = TurnId(event.request_id)
            match event:
                case EngineFirstToken():
                    self._turns[turn].first_token_at = event.at
                    self._feed(FirstToken(event.at, turn))
                case Finished():
                    self._finished(turn, event)

    def _finished(self, turn: TurnId, event: Finished) -> None:
        played = self._turns.pop(turn)
        prompt_tokens = played.request.prompt.tokens
        usage = Usage(prompt_tokens, event.output_tokens, event.cached_tokens)
        self._feed(TurnFinished(event.at, turn, usage, played.session.tools()))
        self._measure(played, event.at, usage, None)
        played.session.answered(played.request)
        self._after_turn(played.session, event.at)

    def _after_turn(self, session: PlayedSession, at: float) -> None:
        if session.is_last:
            self._end(session, at)
            return
        tool_seconds, human_seconds = session.away_seconds()
        session.next_turn += 1
        session.tool_ended_at = at + tool_seconds if tool_seconds and not human_seconds else None
        self._agenda.book(at + tool_seconds + human_seconds, lambda when: self._arrive(session, when))

    def _end(self, session: PlayedSession, at: float) -> None:
        self._feed(SessionEnded(at, SessionId(session.trace.session_id)))
        following = self._arrivals.after_end(at)
        if following is not None:
            self._start(*following)

    def _start(self, at: float, trace: TraceSession) -> None:
        session = PlayedSession(trace, self._settings)
        self._agenda.book(at, lambda when: self._arrive(session, when))

    def _arrive(self, session: PlayedSession, at: float) -> None:
        turn = TurnId(f"{session.trace.session_id}/{session.next_turn}")
        kind = TurnKind.RESET if session.starts_afresh() else TurnKind.MAIN
        request = session.request(turn)
        self._turns[turn] = _Played(session, request, at)
        session_id = SessionId(session.trace.session_id)
        self._feed(TurnArrived(at, turn, session_id, request.prompt.tokens, kind))

    def _feed(self, event: Event) -> None:
        commands = self.scheduler.handle(event)
        for observe in self._observers:
            observe(event, commands)
        for command in commands:
            match command:
                case DispatchTurn():
                    self._dispatch(command)
                case RefuseTurn():
                    self._refused(command)
                case ComputePlan():
                    self._plan(command)

    def _dispatch(self, command: DispatchTurn) -> None:
        played = self._turns[command.turn]
        played.hold_seconds = command.hold_seconds
        played.replica = command.replica
        try:
            self._fleet.submit(self.now, command.replica, played.request)
        except RequestRefusedError as error:
            cause = str(error)
            self._agenda.book(self.now, lambda at: self._failed(command.turn, at, cause))

    def _failed(self, turn: TurnId, at: float, cause: str) -> None:
        played = self._turns.pop(turn)
        self._feed(TurnFailed(at, turn, cause))
        self._measure(played, at, None, "refused by the engine")
        self._end(played.session, at)

    def _refused(self, command: RefuseTurn) -> None:
        played = self._turns.pop(command.turn)
        self._measure(played, self.now, None, command.cause.value)
        at = self.now
        self._agenda.book(at, lambda when: self._end(played.session, when))

    def _plan(self, command: ComputePlan) -> None:
        answer = solve(problem_of(command.request), command.request.solver)
        seconds = answer.work_units * SECONDS_PER_WORK_UNIT
        self.planner.plans += 1
        self.planner.seconds += seconds
        self.planner.fallbacks += answer.status == "fallback"
        assignments = assignments_of(command.request, answer.assignment)
        self._agenda.book(
            self.now + seconds,
            lambda at: self._feed(
                PlanReady(at, command.plan, assignments, answer.solver, answer.status, seconds)
            ),
        )

    def _measure(self, played: _Played, at: float, usage: Usage | None, error: str | None) -> None:
        session = played.session
        self.measurements.append(
            TurnMeasurement(
                session_id=session.trace.session_id,
                turn_index=session.next_turn,
                arrived_at=played.arrived_at,
                finished_at=at,
                first_token_at=played.first_token_at,
                hold_seconds=played.hold_seconds,
                prompt_tokens=None if usage is None else usage.prompt_tokens,
                cached_tokens=None if usage is None else usage.cached_tokens,
                output_tokens=None if usage is None else usage.output_tokens,
                tool_ended_at=session.tool_ended_at,
                error=error,
                parent_session_id=session.trace.parent,
            )
        )
