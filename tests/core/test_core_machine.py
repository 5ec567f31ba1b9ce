"""A state machine throws legal, late, duplicate and unknown events at the core, under every policy of the catalogue.

It plays the driver: it remembers what was dispatched, held and ended, owes each dispatched turn one terminal event, and
answers plans by the real planner, by old answers and by nonsense. Invariants are checked after every event; at the end
everything is let finish, and nothing may remain.
"""

import json

import pytest
from core_kit import of_kind
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from watched import Watched

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import (
    UNGATED,
    AdmitSession,
    Command,
    ComputePlan,
    DispatchTurn,
    Interruption,
    InterruptSession,
    Refusal,
    RefuseTurn,
    StopTurn,
)
from tao.core.events import (
    CacheFlushed,
    CacheWatchLost,
    CapacityChanged,
    ClientLeft,
    Event,
    FirstToken,
    ModelsChanged,
    PlanFailed,
    PlanReady,
    PrefixNode,
    PrefixObserved,
    ReplicaDraining,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
    SessionEnded,
    ShutdownStarted,
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
    WeightsUpdateBegan,
    WeightsUpdateEnded,
)
from tao.core.ids import PlanId, ReplicaId, SessionId, TurnId
from tao.core.phases import Away
from tao.planning import solve
from tao.policies import POLICIES, assignments_of, make_policy, problem_of

SESSIONS = st.sampled_from([SessionId(name) for name in "pqrst"])
REPLICAS = st.sampled_from([ReplicaId(name) for name in "abc"])
TOKENS = st.integers(0, 6_000)
CAPACITIES = st.sampled_from([0, 3_000, 8_000, 20_000])
PIECES = (PrefixNode("tools", 900), PrefixNode("tools, system", 600), PrefixNode("tools, task", 2_000))
BEGINNINGS = st.sampled_from([(), PIECES[:1], PIECES[:2], (PIECES[0], PIECES[2])])
MODELS = st.sampled_from([None, None, ("x",), ("y",), ("x", "y"), ()])
SECONDS = st.sampled_from([0.0, 0.01, 0.5, 1.0, 5.0, 40.0, 400.0])
TOOLS = st.lists(
    st.sampled_from([ToolCall("bash"), ToolCall("read"), ToolCall("sh", "sleep", 3.0)]), max_size=2
)
USAGE = st.none() | st.builds(Usage, TOKENS, st.integers(0, 500), st.none() | st.integers(0, 3_000))
SETTINGS = st.builds(
    SchedulerSettings,
    hold_seconds_max=st.sampled_from([2.0, 300.0]),
    idle_seconds_max=st.sampled_from([3.0, 600.0]),
    sessions_max=st.sampled_from([3, 1_000]),
    held_turns_max=st.sampled_from([2, 1_000]),
)


class Core(RuleBasedStateMachine):
    """The core and the books of a driver beside it."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)), bounds=SETTINGS, capacities=st.lists(CAPACITIES, max_size=3)
    )
    def start(self, policy: str, bounds: SchedulerSettings, capacities: list[int]) -> None:
        self.watched = Watched(make_policy(policy))
        self.scheduler = Scheduler(self.watched, bounds)
        self.at = 0.0
        self.turns = 0
        self.held: set[TurnId] = set()
        self.on_engine: dict[TurnId, ReplicaId] = {}
        self.attempts: dict[TurnId, int] = {}
        self.over: list[TurnId] = []
        self.plans: list[ComputePlan] = []
        self.answers: list[PlanReady] = []
        self.shut = False
        for name, capacity_tokens in zip("abc", capacities, strict=False):
            self.feed(ReplicaJoined(self.at, ReplicaId(name), capacity_tokens))

    # --- the driver's books -----------------------------------------------------------------------------------------

    def feed(self, event: Event) -> list[Command]:
        view = self.scheduler.view
        commands = self.scheduler.handle(event)
        self.scheduler.check_invariants()
        for command in commands:
            self.execute(command)
        for admitted in of_kind(commands, AdmitSession):
            if admitted.reason not in UNGATED and admitted.replica in view.replicas:
                after = [c for c in commands if isinstance(c, AdmitSession) and c.replica == admitted.replica]
                if all(c.reason not in UNGATED for c in after):
                    assert view.free_tokens(admitted.replica) >= 0, (event, commands)
        return commands

    def execute(self, command: Command) -> None:
        match command:
            case DispatchTurn(turn=turn):
                assert turn not in self.on_engine, "dispatched while it runs"
                assert command.attempt == self.attempts.get(turn, 0) + 1 <= 2
                assert command.hold_seconds >= 0
                assert command.attempt == 2 or turn in self.held
                assert self.scheduler.view.weights_until is None, "dispatched while weights are updated"  # type: ignore[attr-defined]
                self.held.discard(turn)
                self.attempts[turn] = command.attempt
                self.on_engine[turn] = command.replica
            case RefuseTurn(turn=turn):
                assert turn not in self.on_engine, "refused while it runs"
                assert (turn in self.held) or command.cause is Refusal.REPLICA_FAILED
                self.held.discard(turn)
                self.over.append(turn)
            case StopTurn(turn=turn):
                assert self.on_engine[turn] == command.replica
            case ComputePlan():
                self.plans.append(command)
            case InterruptSession(session=session):
                away = isinstance(self.scheduler.view.sessions[session].phase, Away)
                # What was interrupted can lapse at the same planning point; who asks for another model arrives meanwhile.
                assert (
                    away
                    or command.reason is Interruption.MODEL
                    or (session in self.scheduler.view.pool and command.reason is not Interruption.LAPSED)
                )

    def end(self, event: TurnFinished | TurnFailed | TurnStopped) -> None:
        """A terminal event: the one that a dispatched turn is owed, or one that is late or unknown."""
        running = self.on_engine.pop(event.turn, None) is not None
        self.feed(event)
        if running and event.turn not in self.on_engine and event.turn not in self.over:
            self.over.append(event.turn)

    def any_turn(self, pick: int) -> TurnId:
        """A turn that is held, runs or is over, or one that never was."""
        known = [*sorted(self.held), *self.on_engine, *self.over[-3:], TurnId("unknown")]
        return known[pick % len(known)]

    def at_home(self) -> list[tuple[SessionId, ReplicaId]]:
        """Sessions that hold an admission while their tools run, and where."""
        view = self.scheduler.view
        return [(session.id, replica) for replica in view.replicas for session in view.acting_on(replica)]

    # --- turns ------------------------------------------------------------------------------------------------------

    @rule(
        session=SESSIONS,
        prompt_tokens=TOKENS,
        kind=st.sampled_from([TurnKind.MAIN, TurnKind.MAIN, *TurnKind]),
        pinned=st.sampled_from([None, None, None, ReplicaId("a"), ReplicaId("z")]),
        model=st.sampled_from(["", "", "x", "y", "z"]),
        beginning=BEGINNINGS,
    )
    def arrive(
        self,
        session: SessionId,
        prompt_tokens: int,
        kind: TurnKind,
        pinned: ReplicaId | None,
        model: str,
        beginning: tuple[PrefixNode, ...],
    ) -> None:
        self.turns += 1
        turn = TurnId(f"t{self.turns}")
        self.held.add(turn)  # until the core says otherwise
        self.feed(
            TurnArrived(
                self.at,
                turn,
                session,
                prompt_tokens,
                kind,
                pinned=pinned,
                model=model,
                shared_prefix=beginning,
            )
        )

    @rule(session=SESSIONS, pick=st.integers(0, 20))
    def arrive_again(self, session: SessionId, pick: int) -> None:
        turn = self.any_turn(pick)
        if turn in self.held or turn in self.on_engine:
            assert self.feed(TurnArrived(self.at, turn, session, 100)) == []

    @rule(pick=st.integers(0, 20), output_tokens=st.integers(0, 500))
    def progress(self, pick: int, output_tokens: int) -> None:
        turn = self.any_turn(pick)
        self.feed(FirstToken(self.at, turn))
        self.feed(TurnProgress(self.at, turn, output_tokens))

    @rule(pick=st.integers(0, 20), usage=USAGE, tools=TOOLS)
    def finish(self, pick: int, usage: Usage | None, tools: list[ToolCall]) -> None:
        self.end(TurnFinished(self.at, self.any_turn(pick), usage, tuple(tools)))

    @rule(pick=st.integers(0, 20), retryable=st.booleans())
    def fail(self, pick: int, retryable: bool) -> None:
        self.end(TurnFailed(self.at, self.any_turn(pick), "500", retryable))

    @rule(pick=st.integers(0, 20))
    def stop(self, pick: int) -> None:
        self.end(TurnStopped(self.at, self.any_turn(pick)))

    @rule(pick=st.integers(0, 20))
    def leave(self, pick: int) -> None:
        turn = self.any_turn(pick)
        self.feed(ClientLeft(self.at, turn))
        if turn in self.held:
            self.held.remove(turn)
            self.over.append(turn)

    # --- sessions and replicas --------------------------------------------------------------------------------------

    @rule(session=SESSIONS, what=st.sampled_from(["tool", "told", "began", "measured", "ended"]))
    def of_session(self, session: SessionId, what: str) -> None:
        if what == "tool":
            self.feed(ToolFinished(self.at, session))
        elif what == "told":
            self.feed(ToolExpected(self.at, session, self.at + 2.0))
        elif what == "began":
            self.feed(ToolBegan(self.at, session, ToolCall("bash")))
        elif what == "measured":
            self.feed(ToolsMeasured(self.at, session, (("bash", 1.0),)))
        else:
            self.feed(SessionEnded(self.at, session))

    @rule(replica=REPLICAS, capacity_tokens=CAPACITIES, models=MODELS)
    def join(self, replica: ReplicaId, capacity_tokens: int, models: tuple[str, ...] | None) -> None:
        self.feed(ReplicaJoined(self.at, replica, capacity_tokens, models))

    @rule(replica=REPLICAS, models=MODELS)
    def other_models(self, replica: ReplicaId, models: tuple[str, ...] | None) -> None:
        self.feed(ModelsChanged(self.at, replica, models))

    @rule(seconds=SECONDS)
    def begin_weights(self, seconds: float) -> None:
        self.feed(WeightsUpdateBegan(self.at, self.at + seconds))

    @precondition(lambda self: self.at_home())
    @rule(
        pick=st.integers(0, 20),
        prompt_tokens=TOKENS,
        model=st.sampled_from(["", "", "x"]),
        then=st.sampled_from([None, None, ReplicaLost, ReplicaDraining]),
    )
    def come_back_while_weights_are_updated(
        self, pick: int, prompt_tokens: int, model: str, then: type | None
    ) -> None:
        """By chance alone that is too rare to be met."""
        session, replica = self.at_home()[pick % len(self.at_home())]
        self.feed(WeightsUpdateBegan(self.at, self.at + 40.0))
        self.arrive(session, prompt_tokens, TurnKind.MAIN, None, model, ())
        if then is not None:
            self.feed(then(self.at, replica))

    @rule()
    def end_weights(self) -> None:
        self.feed(WeightsUpdateEnded(self.at))

    @rule(replica=REPLICAS, capacity_tokens=CAPACITIES)
    def resize(self, replica: ReplicaId, capacity_tokens: int) -> None:
        self.feed(CapacityChanged(self.at, replica, capacity_tokens))

    @rule(
        replica=REPLICAS,
        kind=st.sampled_from([ReplicaDraining, ReplicaLost, ReplicaRemoved, CacheFlushed, CacheWatchLost]),
    )
    def of_replica(self, replica: ReplicaId, kind: type) -> None:
        self.feed(kind(self.at, replica))

    @rule(replica=REPLICAS, session=SESSIONS, tokens=TOKENS)
    def watch(self, replica: ReplicaId, session: SessionId, tokens: int) -> None:
        self.feed(PrefixObserved(self.at, replica, session, tokens))

    # --- time and plans ---------------------------------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        self.feed(WakeUp(self.at))

    @rule()
    def wake_when_asked(self) -> None:
        due = self.scheduler.next_wakeup()
        if due is not None:
            self.at = max(self.at, due)
            self.feed(WakeUp(self.at))

    @rule()
    def wake_until_there_is_nothing_to_do(self) -> None:
        for _ in range(60):
            due = self.scheduler.next_wakeup()
            if due is None or due > self.at:
                return
            self.feed(WakeUp(self.at))
            if self.plans:
                self.solve()
        raise AssertionError("it asks to be woken at once, again and again")

    @precondition(lambda self: self.plans)
    @rule()
    def solve(self) -> None:
        plan = self.plans[-1]
        answer = solve(problem_of(plan.request), plan.request.solver)
        ready = PlanReady(self.at, plan.plan, assignments_of(plan.request, answer.assignment))
        self.answers.append(ready)
        self.feed(ready)

    @precondition(lambda self: self.plans and self.answers)
    @rule(pick=st.integers(0, 20))
    def answer_with_an_old_plan(self, pick: int) -> None:
        old = self.answers[pick % len(self.answers)]
        self.feed(PlanReady(self.at, self.plans[-1].plan, old.assignments))

    @rule(pairs=st.lists(st.tuples(SESSIONS, st.sampled_from("abcz")), max_size=4), known=st.booleans())
    def answer_with_nonsense(self, pairs: list[tuple[SessionId, str]], known: bool) -> None:
        plan = self.plans[-1].plan if known and self.plans else PlanId(999)
        self.feed(PlanReady(self.at, plan, tuple((session, ReplicaId(name)) for session, name in pairs)))

    @rule(known=st.booleans())
    def no_plan(self, known: bool) -> None:
        self.feed(
            PlanFailed(self.at, self.plans[-1].plan if known and self.plans else PlanId(999), "crashed")
        )

    @precondition(lambda self: self.turns > 10 and not self.shut)
    @rule()
    def shut_down(self) -> None:
        self.shut = True
        self.feed(ShutdownStarted(self.at))

    # --- what must always be so -------------------------------------------------------------------------------------

    @invariant()
    def the_books_agree(self) -> None:
        turns = self.scheduler.view.turns
        assert {turn for turn, record in turns.items() if record.replica is None} == self.held
        assert {turn: r.replica for turn, r in turns.items() if r.replica is not None} == self.on_engine
        assert len(self.over) == len(set(self.over)), "a turn ended twice"
        assert len(self.over) + len(turns) == self.turns, "a turn got lost"

    @rule()
    def tell_the_state(self) -> None:
        json.dumps(self.scheduler.snapshot())
        for session in self.scheduler.view.sessions:
            json.dumps(self.scheduler.explain(session))

    @invariant()
    def whoever_is_held_has_a_deadline(self) -> None:
        if self.held:
            assert self.scheduler.next_wakeup() is not None

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(50):
            for turn in list(self.on_engine):
                self.end(TurnFinished(self.at, turn))
            due = self.scheduler.next_wakeup()
            if due is None or not self.held:
                break
            self.at = max(self.at, due)
            self.feed(WakeUp(self.at))
            if self.plans:
                self.solve()
        for turn in sorted(self.held):
            self.leave(sorted(self.held).index(turn))
        for turn in list(self.on_engine):
            self.end(TurnStopped(self.at, turn))
        for session in list(self.scheduler.view.sessions):
            self.feed(SessionEnded(self.at, session))
        self.the_books_agree()
        assert not self.scheduler.view.sessions
        assert not self.scheduler.view.turns
        assert all(replica["reserved_tokens"] == 0 for replica in self.scheduler.snapshot()["replicas"])  # type: ignore[attr-defined]


pytestmark = pytest.mark.timeout(600)  # to make a counterexample small takes its time
TestCore = Core.TestCase
TestCore.settings = settings(
    max_examples=500,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
