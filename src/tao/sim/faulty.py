"""A simulation in which things go wrong as a `FaultPlan` says, and in which every session still has to end.

It breaks what a driver can meet: replicas, clients, tools, metrics, messages. It never breaks the driver's own duty:
every dispatched turn ends in a terminal event, though sometimes in two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tao.core import Scheduler
from tao.core.commands import ComputePlan, DispatchTurn, RefuseTurn, StopTurn
from tao.core.events import (
    CapacityChanged,
    ClientLeft,
    Event,
    ReplicaJoined,
    ReplicaLost,
    TurnFailed,
    TurnFinished,
    TurnStopped,
    Usage,
)
from tao.core.ids import ReplicaId, TurnId
from tao.enginemodel import Chain, EngineModel, Finished, Request
from tao.sim.faults import Dice, FaultPlan
from tao.sim.played import PlayedSession
from tao.sim.simulation import Observer, OnProgress, PlayedTurn, Simulation
from tao.sim.workload import Workload

GHOST_SHARE = 0.5
"""How much of a replica's memory the traffic of others takes at a time, at most."""
GHOST = "others/"


class FaultySimulation(Simulation):
    """`told`: how often each kind of fault happened."""

    def __init__(
        self,
        scheduler: Scheduler,
        engines: Mapping[ReplicaId, EngineModel],
        workload: Workload,
        observers: Sequence[Observer] = (),
        on_progress: OnProgress | None = None,
        *,
        plan: FaultPlan,
        seed: int,
    ) -> None:
        super().__init__(scheduler, engines, workload, observers, on_progress)
        self.told: dict[str, int] = {}
        self._faults = plan
        self._dice = Dice(seed)
        self._dead: dict[ReplicaId, None] = {}
        self._leaving: dict[TurnId, None] = {}  # the client has hung up, the engine still works on it
        self._ghosts = 0
        self._again = 0
        for purpose, gap_seconds, fault in (
            ("death", plan.death_gap_seconds, self._die),
            ("eviction", plan.eviction_gap_seconds, self._evict),
            ("stale capacity", plan.stale_gap_seconds, self._misreport),
        ):
            if gap_seconds is not None:
                first = self._dice.of(purpose).expovariate(1.0 / gap_seconds)
                self._agenda.book(first, self._timed, purpose, gap_seconds, fault)

    # --- timed faults -----------------------------------------------------------------------------------------------

    def _timed(self, at: float, purpose: str, gap_seconds: float, fault: Callable[[float], None]) -> None:
        if not self._healthy(at) and self.scheduler.view.sessions:
            fault(at)
            gap = self._dice.of(purpose).expovariate(1.0 / gap_seconds)
            self._agenda.book(at + gap, self._timed, purpose, gap_seconds, fault)

    def _healthy(self, at: float) -> bool:
        return at >= self._faults.heal_at

    def _count(self, kind: str) -> None:
        self.told[kind] = self.told.get(kind, 0) + 1

    def _die(self, at: float) -> None:
        """A replica dies. Its turns fail at once; that it is gone is noticed later, that it is back later still."""
        replica = self._dice.replica("death", self._fleet.replicas)
        if replica in self._dead:
            return
        self._count("replica died")
        self._dead[replica] = None
        for request_id in self._fleet.restart(at, replica):
            self._agenda.book(at, self._broken, TurnId(request_id))
        noticed_at = at + self._faults.notice_seconds
        outage = self._dice.of("death").expovariate(1.0) * self._faults.outage_seconds
        self._agenda.book(noticed_at, self._noticed, replica)
        self._agenda.book(noticed_at + outage, self._back, replica)

    def _noticed(self, at: float, replica: ReplicaId) -> None:
        self._feed(ReplicaLost(at, replica))

    def _back(self, at: float, replica: ReplicaId) -> None:
        self._dead.pop(replica, None)
        fleet = self._fleet
        self._feed(ReplicaJoined(at, replica, fleet.capacity_tokens(replica), slots=fleet.slots(replica)))

    def _broken(self, at: float, turn: TurnId) -> None:
        """The engine is gone in the middle of a turn, or before it took one."""
        played = self._turns.get(turn)
        if played is None:
            return
        if turn in self._leaving:
            self._feed(TurnFailed(at, turn, "the replica died"))
            self._left(at, turn)
        elif played.first_token_at is None:
            self._feed(TurnFailed(at, turn, "the replica died", retryable=True))
        else:
            self._failed(at, turn, "the replica died", "the stream broke off")

    def _evict(self, at: float) -> None:
        """Requests of others push a part of a replica's cache out."""
        replica = self._dice.replica("eviction", self._fleet.replicas)
        share = self._dice.of("eviction").uniform(0.05, GHOST_SHARE)
        self._ghosts += 1
        tokens = max(1, int(self._fleet.capacity_tokens(replica) * share))
        tokens = min(tokens, self._fleet.request_tokens_max(replica) - 1)
        request = Request(f"{GHOST}{self._ghosts}", Chain.of((((GHOST, self._ghosts), tokens),)), 1)
        self._fleet.submit(at, replica, request)
        self._count("cache displaced by others")

    def _misreport(self, at: float) -> None:
        """A replica's capacity is told wrongly, then rightly again."""
        replica = self._dice.replica("stale capacity", self._fleet.replicas)
        chance = self._dice.of("stale capacity")
        right = self._fleet.capacity_tokens(replica)
        self._feed(CapacityChanged(at, replica, int(right * chance.uniform(0.3, 1.5))))
        self._agenda.book(at + chance.uniform(1.0, 60.0), self._corrected, replica)
        self._count("wrong capacity reported")

    def _corrected(self, at: float, replica: ReplicaId) -> None:
        self._feed(CapacityChanged(at, replica, self._fleet.capacity_tokens(replica)))

    # --- replicas and plans -----------------------------------------------------------------------------------------

    def _dispatch(self, command: DispatchTurn) -> None:
        if command.replica not in self._dead:
            super()._dispatch(command)
            return
        played = self._turns[command.turn]
        played.hold_seconds, played.replica = command.hold_seconds, command.replica
        self._agenda.book(self.now, self._broken, command.turn)

    def _stop(self, command: StopTurn) -> None:
        self._leaving[command.turn] = None
        if self._dice.happens("lost abort", self._faults.abort_lost_share):
            self._count("abort lost")
            self._agenda.book(self.now + 5.0, self._stopped, command.turn)
        else:
            super()._stop(command)

    def _stopped(self, at: float, turn: TurnId) -> None:
        self._feed(TurnStopped(at, turn))  # late where the turn has ended by itself
        if turn in self._leaving:
            self._left(at, turn)

    def _plan_seconds(self, command: ComputePlan, seconds: float) -> float:
        if self._healthy(self.now) or not self._dice.happens("late plan", self._faults.plan_late_share):
            return super()._plan_seconds(command, seconds)
        self._count("plan late")
        return seconds + self._faults.plan_late_seconds

    # --- messages ---------------------------------------------------------------------------------------------------

    def _first_token(self, at: float, turn: TurnId) -> None:
        if turn in self._turns:
            super()._first_token(at, turn)

    def _finished(self, turn: TurnId, event: Finished) -> None:
        played = self._turns.get(turn)
        if turn.startswith(GHOST):
            return
        usage = Usage(0, event.output_tokens) if played is None else self._usage(played, event)
        if played is None:  # its abort was lost: nobody waits for it any more
            self._feed(TurnFinished(event.at, turn, usage))
            self._count("turn ended after it was given up")
        elif turn in self._leaving:
            self._feed(TurnFinished(event.at, turn, usage))
            self._left(event.at, turn)
        else:
            super()._finished(turn, event)
            if self._dice.happens("duplicate", self._faults.duplicate_share):
                self._count("completion told twice")
                self._agenda.book(
                    event.at + 0.25, self._again_told, TurnFinished(event.at + 0.25, turn, usage)
                )

    def _again_told(self, at: float, event: Event) -> None:  # noqa: ARG002 - the event carries its time
        self._feed(event)

    # --- clients and tools ------------------------------------------------------------------------------------------

    def _send(self, at: float, turn: TurnId, played: PlayedTurn) -> None:
        super()._send(at, turn, played)
        if not self._healthy(at) and self._dice.happens("client", self._faults.client_leaves_share):
            patience = self._dice.of("client").expovariate(1.0 / 4.0)
            self._agenda.book(at + patience, self._hang_up, turn)

    def _hang_up(self, at: float, turn: TurnId) -> None:
        played = self._turns.get(turn)
        if played is None:
            return
        self._count("client hung up")
        self._feed(ClientLeft(at, turn))
        if turn not in self._leaving:  # it was held
            self._left(at, turn)

    def _refused(self, command: RefuseTurn) -> None:
        self._leaving.pop(command.turn, None)
        super()._refused(command)

    def _left(self, at: float, turn: TurnId) -> None:
        """A turn whose client has hung up is over: the client ends the session, sends the turn again, or vanishes."""
        self._leaving.pop(turn, None)
        played = self._turns.pop(turn)
        self._measure(played, at, None, "the client hung up")
        session = played.session
        what = self._dice.of("after hanging up").choice(("ends", "again", "vanishes"))
        if what == "ends":
            self._end(at, session)
        elif what == "vanishes":
            self._over(at, session)
        else:
            self._again += 1
            again = TurnId(f"{session.id}/{session.next_turn}.{self._again}")
            self._agenda.book(at + 2.0, self._send_again, again, session, replace(played.request, id=again))

    def _send_again(self, at: float, turn: TurnId, session: PlayedSession, request: Request) -> None:
        self._send(at, turn, PlayedTurn(session, request, at))

    def _away(self, tool_ends_at: float, session: PlayedSession) -> None:
        if not self._healthy(self.now) and self._dice.happens("tool", self._faults.tool_lost_share):
            self._count("tool never returned")
            self._over(self.now, session)
        else:
            super()._away(tool_ends_at, session)
