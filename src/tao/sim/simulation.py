"""One run in virtual time: the core unchanged, engine models as replicas, recorded sessions as the load.

The simulation is a driver like the gateway's: it feeds events, executes commands, arms one timer. Planning takes virtual
time in proportion to the planner's work units, so that a run repeats exactly on any machine. What can go wrong with
replicas and clients is in `tao.sim.faults`; here only what an engine refuses does.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from tao.core import Scheduler
from tao.core.commands import Command, ComputePlan, DispatchTurn, RefuseTurn, StopTurn
from tao.core.events import (
    Event,
    FirstToken,
    PlanReady,
    ReplicaJoined,
    SessionEnded,
    ToolExpected,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnStopped,
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
from tao.sim.played import PlayedSession
from tao.sim.workload import Workload

SECONDS_PER_WORK_UNIT = 1e-6
"""What the planner's unit of work costs in virtual time (see `tao.planning.Answer.work_units`)."""

RETOLD_SECONDS = 20.0
"""A tool that exposes its return says it again so often: schedulers forget old promises."""

WAKE_UPS_AT_ONE_MOMENT_MAX = 10_000
"""A policy that asks for more planning points without letting time pass would never end."""


OnProgress = Callable[[int], None]
"""Told how many turns have ended."""


class Observer(Protocol):
    """Sees every event that was answered by commands, with them; of the others those of the kinds in `watches`."""

    @property
    def watches(self) -> frozenset[type[Event]]: ...

    def __call__(self, event: Event, commands: Sequence[Command]) -> None: ...

    def end(self, at: float) -> None:
        """The run is over."""


class StuckError(RuntimeError):
    """The run cannot end: time does not move any more."""


class PlannerTotals:
    """All planning of a run, in virtual seconds, failed searches and fallbacks included."""

    __slots__ = ("fallbacks", "plans", "seconds")

    def __init__(self) -> None:
        self.plans = 0
        self.seconds = 0.0
        self.fallbacks = 0


class PlayedTurn:
    """A turn on its way: `replica` is None while it is held."""

    __slots__ = ("arrived_at", "first_token_at", "hold_seconds", "replica", "request", "session")

    def __init__(self, session: PlayedSession, request: Request, arrived_at: float) -> None:
        self.session = session
        self.request = request
        self.arrived_at = arrived_at
        self.hold_seconds = 0.0
        self.first_token_at: float | None = None
        self.replica: ReplicaId | None = None


class Simulation:
    """`run()` plays all sessions and returns the turns in the order in which they ended. Use once."""

    def __init__(
        self,
        scheduler: Scheduler,
        engines: Mapping[ReplicaId, EngineModel],
        workload: Workload,
        observers: Sequence[Observer] = (),
        on_progress: OnProgress | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.planner = PlannerTotals()
        self.measurements: list[TurnMeasurement] = []
        self.now = 0.0
        self._fleet = Fleet(engines.items())
        self._workload = workload
        self._observers = tuple(observers)
        self._watching = _by_kind(self._observers)
        self._on_progress = on_progress
        self._agenda = Agenda()
        self._turns: dict[TurnId, PlayedTurn] = {}
        self._execute: Mapping[type[Command], Callable[[Any], None]] = {
            DispatchTurn: self._dispatch,
            RefuseTurn: self._refused,
            StopTurn: self._stop,
            ComputePlan: self._plan,
        }
        self._wake_at: float | None = None  # None: to be asked for
        self._woke_at = -inf
        self._wake_ups = 0  # at that moment

    def run(self) -> list[TurnMeasurement]:
        """Play to the end: all sessions are over and nothing is due any more. `StuckError` if that cannot come."""
        for replica in self._fleet.replicas:
            fleet = self._fleet
            self._feed(
                ReplicaJoined(0.0, replica, fleet.capacity_tokens(replica), slots=fleet.slots(replica))
            )
        for at, session in self._workload.first():
            self._agenda.book(at, self._arrive, session)
        while self._step():
            pass
        for observer in self._observers:
            observer.end(self.now)
        return self.measurements

    @property
    def reloaded_tokens(self) -> int:
        """Prompt tokens that replicas loaded from host memory instead of computing them."""
        return self._fleet.reloaded_tokens()

    # --- time -------------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Let the next thing happen: engines before the agenda before the core's timer, at equal times."""
        engine_at, agenda_at, wake_at = self._fleet.next_at, self._agenda.next_at, self._wake_at
        if wake_at is None:
            asked_at = self.scheduler.next_wakeup()
            self._wake_at = wake_at = inf if asked_at is None else max(asked_at, self.now)
        if engine_at <= agenda_at and engine_at <= wake_at:
            if engine_at == inf:
                return False
            self.now = engine_at
            self._engine_events()
        elif agenda_at <= wake_at:
            self.now = agenda_at
            self._agenda.do_next()
        elif self._nothing_left():
            return False
        else:
            self._wake_up(wake_at)
        return True

    def _nothing_left(self) -> bool:
        """Whether only the core's timer is armed and no session is there for which it could matter."""
        return self._agenda.next_at == inf and self._fleet.is_idle() and not self.scheduler.view.sessions

    def _wake_up(self, at: float) -> None:
        self.now = at
        self._wake_ups = self._wake_ups + 1 if at == self._woke_at else 1
        self._woke_at = at
        if self._wake_ups > WAKE_UPS_AT_ONE_MOMENT_MAX:
            raise StuckError(
                f"{self._wake_ups} planning points at {at:g} s and time does not move: the policy asks for more"
            )
        self._feed(WakeUp(at))

    # --- the core ---------------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        commands = self.scheduler.handle(event)
        self._wake_at = None
        for observe in self._observers if commands else self._watching.get(type(event), ()):
            observe(event, commands)
        for command in commands:
            execute = self._execute.get(type(command))
            if execute is not None:
                execute(command)

    def _dispatch(self, command: DispatchTurn) -> None:
        played = self._turns[command.turn]
        played.hold_seconds = command.hold_seconds
        played.replica = command.replica
        try:
            self._fleet.submit(self.now, command.replica, played.request)
        except RequestRefusedError as error:
            self._agenda.book(self.now, self._failed, command.turn, str(error), "refused by the engine")

    def _refused(self, command: RefuseTurn) -> None:
        played = self._turns.pop(command.turn)
        self._measure(played, self.now, None, command.cause.value)
        self._agenda.book(self.now, self._end, played.session)

    def _stop(self, command: StopTurn) -> None:
        self._fleet.abort(self.now, command.replica, command.turn)
        self._agenda.book(self.now, self._stopped, command.turn)

    def _stopped(self, at: float, turn: TurnId) -> None:
        self._feed(TurnStopped(at, turn))

    def _plan(self, command: ComputePlan) -> None:
        answer = solve(problem_of(command.request), command.request.solver)
        seconds = self._plan_seconds(command, answer.work_units * SECONDS_PER_WORK_UNIT)
        self.planner.plans += 1
        self.planner.seconds += seconds
        self.planner.fallbacks += answer.status == "fallback"
        assignments = assignments_of(command.request, answer.assignment)
        at = self.now + seconds
        ready = PlanReady(at, command.plan, assignments, answer.solver, answer.status, seconds)
        self._agenda.book(at, self._planned, ready)

    def _plan_seconds(self, command: ComputePlan, seconds: float) -> float:  # noqa: ARG002 - for those that delay
        """How long the planner takes, from the work it did."""
        return seconds

    def _planned(self, at: float, ready: PlanReady) -> None:  # noqa: ARG002 - the event carries its time
        self._feed(ready)

    # --- the engines ------------------------------------------------------------------------------------------------

    def _engine_events(self) -> None:
        for event in self._fleet.advance():
            if isinstance(event, EngineFirstToken):
                self._first_token(event.at, TurnId(event.request_id))
            elif isinstance(event, Finished):
                self._finished(TurnId(event.request_id), event)

    def _first_token(self, at: float, turn: TurnId) -> None:
        self._turns[turn].first_token_at = at
        self._feed(FirstToken(at, turn))

    def _finished(self, turn: TurnId, event: Finished) -> None:
        played = self._turns.pop(turn)
        session = played.session
        usage = self._usage(played, event)
        self._feed(TurnFinished(event.at, turn, usage, session.tools()))
        self._measure(played, event.at, usage, None)
        session.answered(played.request)
        self._after_turn(session, event.at)

    def _usage(self, played: PlayedTurn, event: Finished) -> Usage:
        return Usage(played.request.prompt.tokens, event.output_tokens, event.cached_tokens)

    def _failed(self, at: float, turn: TurnId, cause: str, kind: str) -> None:
        played = self._turns.pop(turn)
        self._feed(TurnFailed(at, turn, cause))
        self._measure(played, at, None, kind)
        self._end(at, played.session)

    # --- the sessions -----------------------------------------------------------------------------------------------

    def _arrive(self, at: float, session: PlayedSession) -> None:
        turn = TurnId(f"{session.id}/{session.next_turn}")
        self._send(at, turn, PlayedTurn(session, session.request(turn), at))

    def _send(self, at: float, turn: TurnId, played: PlayedTurn) -> None:
        self._turns[turn] = played
        session = played.session
        kind = TurnKind.RESET if session.starts_afresh else TurnKind.MAIN
        parent = SessionId(session.trace.parent) if session.trace.parent is not None else None
        prompt_tokens, shared = played.request.prompt.tokens, session.shared_prefix
        self._feed(
            TurnArrived(at, turn, session.id, prompt_tokens, kind, parent=parent, shared_prefix=shared)
        )

    def _after_turn(self, session: PlayedSession, at: float) -> None:
        """The turn in play has ended: sub-agents start, the tool runs, a human thinks, or the session is over."""
        children = self._workload.children_of(session)
        for child in children:
            self._agenda.book(at, self._arrive, child)
        if session.is_last:
            self._end(at, session)
        elif children and session.waits_for_children():
            session.children_left = len(children)
        else:
            self._away(at + session.tool_seconds(), session)

    def _away(self, tool_ends_at: float, session: PlayedSession) -> None:
        """The session is back when its tool and its human are done."""
        human_seconds = session.human_seconds()
        back_at = tool_ends_at + human_seconds
        session.tool_ended_at = back_at if session.runs_tool and not human_seconds else None
        session.advance()
        self._agenda.book(back_at, self._arrive, session)
        if self._workload.returns_told and session.tool_ended_at is not None:
            self._tell_return(self.now, session, back_at)

    def _tell_return(self, at: float, session: PlayedSession, back_at: float) -> None:
        """The tool interface exposes when the tool returns, as a client of `POST /v1/tao/tools` would."""
        self._feed(ToolExpected(at, session.id, back_at))
        if at + RETOLD_SECONDS < back_at:
            self._agenda.book(at + RETOLD_SECONDS, self._tell_return, session, back_at)

    def _end(self, at: float, session: PlayedSession) -> None:
        if self._workload.ends_told:
            self._feed(SessionEnded(at, session.id))
        self._over(at, session)

    def _over(self, at: float, session: PlayedSession) -> None:
        """Nothing comes of the session any more: its worker goes on, its parent may."""
        parent = session.awaited_by
        if parent is not None:
            parent.children_left -= 1
            if not parent.children_left:
                self._away(at, parent)
        following = self._workload.after_end(session)
        if following is not None:
            self._agenda.book(at, self._arrive, following)

    def _measure(self, played: PlayedTurn, at: float, usage: Usage | None, error: str | None) -> None:
        session = played.session
        self.measurements.append(
            TurnMeasurement(
                session_id=session.id,
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
        if self._on_progress is not None:
            self._on_progress(len(self.measurements))


def _by_kind(observers: Sequence[Observer]) -> Mapping[type[Event], tuple[Observer, ...]]:
    """Who watches events of each kind, in order."""
    kinds = dict.fromkeys(kind for observer in observers for kind in observer.watches)
    return {kind: tuple(one for one in observers if kind in one.watches) for kind in kinds}
