"""The live driver: feeds events to the core and executes its commands, on one event loop.

The HTTP side gets a `Ticket` for each turn and waits on it; what happens to the turn comes back through the methods of
the ticket. Nothing is decided here. Observers see each event with its commands: the log, the metrics, the journal.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from tao.core import Scheduler
from tao.core.commands import Command, ComputePlan, DispatchTurn, RefuseTurn
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    PlanFailed,
    ToolCall,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnProgress,
    TurnStopped,
    Usage,
    WakeUp,
)
from tao.core.ids import TurnId
from tao.gateway.clock import ModelClock
from tao.gateway.planner import Planner

Observer = Callable[[Event, Sequence[Command]], None]
Outcome = DispatchTurn | RefuseTurn


class NoDecisionError(Exception):
    """The core failed at what decides on turns that wait; the message goes to their clients (500)."""


class Ticket:
    """One turn in the hands of the HTTP side. After a dispatch exactly one ending is reported; `abandon` is the net."""

    __slots__ = ("_dispatched", "_driver", "_given_up", "_outcome", "_over", "_turn", "_waiter")

    def __init__(self, driver: "Driver", turn: TurnId) -> None:
        self._driver = driver
        self._turn = turn
        self._outcome: Outcome | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._dispatched = False
        self._given_up = False
        self._over = False

    @property
    def decided(self) -> bool:
        """Whether the decision is there already."""
        return self._outcome is not None

    @property
    def over(self) -> bool:
        """Whether an ending was reported, or the turn refused."""
        return self._over

    async def decision(self) -> Outcome:
        """Where the turn goes, or that it is refused. Cancelling the wait leaves the turn held. For one at a time.

        Raises `NoDecisionError`; the turn is held even then.
        """
        while self._outcome is None:
            if self._given_up:
                raise NoDecisionError("TAO failed to schedule this request; its log says why")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._outcome

    def take(self, outcome: Outcome) -> None:
        """Called by the driver."""
        self._outcome = outcome
        self._dispatched = isinstance(outcome, DispatchTurn)
        self._over = not self._dispatched
        self._wake()

    def give_up(self) -> None:
        """Called by the driver: a turn without a decision gets none."""
        if self._outcome is None:
            self._given_up = True
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def first_token(self) -> None:
        """The first output was seen."""
        self._driver.feed(FirstToken(self._driver.clock.now(), self._turn))

    def progress(self, output_tokens: int) -> None:
        """So much output was seen so far."""
        self._driver.feed(TurnProgress(self._driver.clock.now(), self._turn, output_tokens))

    def finished(self, usage: Usage | None, tools: tuple[ToolCall, ...]) -> None:
        """The answer is complete."""
        self._over = True
        self._driver.feed(TurnFinished(self._driver.clock.now(), self._turn, usage, tools))

    def failed(self, cause: str, *, retryable: bool) -> None:
        """The engine refused or broke off. After a retryable failure `decision` tells what comes next."""
        if retryable:
            self._outcome = None
        else:
            self._over = True
        self._driver.feed(TurnFailed(self._driver.clock.now(), self._turn, cause, retryable))

    def abandon(self) -> None:
        """The client left, or the handler broke off: free everything. Does nothing when the turn is over."""
        if self._over:
            return
        self._over = True
        self._driver.feed(ClientLeft(self._driver.clock.now(), self._turn))
        if self._dispatched:
            self._driver.feed(TurnStopped(self._driver.clock.now(), self._turn))

    def close(self) -> None:
        """The HTTP side needs the ticket no more."""
        try:
            self.abandon()
        finally:
            self._driver.forget(self._turn)


class Driver:
    """Owns the core's timer and the outstanding plan."""

    def __init__(
        self, scheduler: Scheduler, clock: ModelClock, planner: Planner, observers: Sequence[Observer] = ()
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.planner = planner
        self.failure: str | None = None
        self._observers = list(observers)
        self._tickets: dict[TurnId, Ticket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._plans: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("tao.driver")

    def watch(self, observer: Observer) -> None:
        """Let one more observer see each event with its commands."""
        self._observers.append(observer)

    def arrive(self, event: TurnArrived) -> Ticket:
        """Take a turn in. Its decision may be there at once."""
        ticket = self._tickets[event.turn] = Ticket(self, event.turn)
        try:
            self.feed(event)
        except BaseException:
            self.forget(event.turn)
            raise
        return ticket

    def feed(self, event: Event) -> None:
        """Let the core handle an event, and execute what it says.

        A defect of the core is remembered in `failure`, so that the readiness page tells, and raised.
        """
        try:
            commands = self.scheduler.handle(event)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            self._log.exception("the core failed", event_kind=type(event).__name__)
            raise
        self._tell(event, commands)
        for command in commands:
            self._execute(command)
        self._arm()

    def _feed_for_all(self, event: Event) -> None:
        """An event of no single request. Where the core fails at it, those who wait are told: nothing else would."""
        try:
            self.feed(event)
        except Exception:
            for ticket in self._tickets.values():
                ticket.give_up()
            raise

    def _tell(self, event: Event, commands: Sequence[Command]) -> None:
        """To whoever watches; one that fails (a full disk, say) is dropped, since turns must go on."""
        for observe in tuple(self._observers):
            try:
                observe(event, commands)
            except Exception:
                self._observers.remove(observe)
                self._log.exception("an observer failed; it is told nothing any more", observer=repr(observe))

    def forget(self, turn: TurnId) -> None:
        """Drop a ticket."""
        self._tickets.pop(turn, None)

    async def close(self) -> None:
        """Stop the timer and the outstanding plan."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._plans:
            task.cancel()
        await asyncio.gather(*self._plans, return_exceptions=True)

    def _execute(self, command: Command) -> None:
        match command:
            case DispatchTurn() | RefuseTurn():
                ticket = self._tickets.get(command.turn)
                if ticket is not None:
                    ticket.take(command)
            case ComputePlan():
                task = asyncio.get_running_loop().create_task(self._plan(command))
                self._plans.add(task)
                task.add_done_callback(self._plans.discard)
            case _:
                # StopTurn needs nothing: a turn is only asked to stop by its own handler, which stops it itself.
                pass

    async def _plan(self, command: ComputePlan) -> None:
        try:
            _, ready = await self.planner.answer(command)
        except Exception as error:  # a defect of the planner must not end planning for good
            self._log.exception("no plan, and no fallback either")
            self._feed_for_all(PlanFailed(self.clock.now(), command.plan, repr(error)))
            return
        self._feed_for_all(replace(ready, at=self.clock.now()))

    def _arm(self) -> None:
        """A timer that is due no later than needed is left alone: it looks again when it fires."""
        due = self.scheduler.next_wakeup()
        if due is None or (self._timer_at is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        delay_seconds = max(0.0, self.clock.wall_seconds(due - self.clock.now()))
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._timer_at = None
        due = self.scheduler.next_wakeup()
        if due is not None and due <= self.clock.now():
            self._feed_for_all(WakeUp(self.clock.now()))
        else:
            self._arm()
