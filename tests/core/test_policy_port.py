"""What a policy may answer beyond what those of the catalogue do: the core acts on it, and says so in its commands."""

from collections.abc import Iterable, Sequence

import pytest
from core_kit import World, of_kind
from watched import Watched

from tao.core.commands import (
    AdmitSession,
    ComputePlan,
    DispatchTurn,
    Interruption,
    InterruptSession,
    Reason,
)
from tao.core.events import PlanReady
from tao.core.facts import SessionInterrupted
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Running, Waiting
from tao.core.ports import Assignment, Decision, Hold, Place, PolicyAnswerError, View
from tao.core.session import Session, Turn
from tao.policies import make_policy


class Miser(Watched):
    """Holds every turn it is asked about, gives up on all who act, and places those who wait when it is told to."""

    def __init__(self) -> None:
        super().__init__(make_policy("tao"))
        self.placements: list[tuple[SessionId, ReplicaId]] = []
        self.due: float | None = None
        self.victims: list[SessionId] = []

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return Hold("no")

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self.due

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        return self.victims

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        return ()

    def decide(self, view: View, at: float) -> Decision:
        self.due = None
        return Decision(placements=self.placements)


def placed() -> tuple[World, Miser]:
    """Session s runs on a, by the policy's own rule."""
    miser = Miser()
    w = World(miser, a=2_000)
    w.arrive("s", "t1")
    miser.placements, miser.due = [(SessionId("s"), ReplicaId("a"))], 0.0
    w.wake()
    return w, miser


def test_a_rule_may_place_beyond_the_capacity_and_is_named() -> None:
    w, miser = placed()
    w.arrive("r", "u1")
    miser.placements, miser.due = [(SessionId("r"), ReplicaId("a"))], 0.0
    [admit] = of_kind(w.wake(), AdmitSession)
    assert (admit.reason, admit.weight_tokens) == (Reason.RULE, 1_512)
    assert w.free("a") < 0


def test_a_session_that_runs_is_not_held_whatever_the_policy_says() -> None:
    w, _ = placed()
    [dispatch] = w.arrive("s", "t2")
    assert isinstance(dispatch, DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("a", Reason.HOME)
    assert isinstance(w.session("s").phase, Running)


def test_a_policy_may_take_the_admission_of_a_session_that_returns() -> None:
    w, _ = placed()
    w.finish("t1")
    [interrupt] = w.arrive("s", "t2")
    assert interrupt == InterruptSession("s", "a", Interruption.RULE)  # type: ignore[arg-type]
    assert isinstance(w.session("s").phase, Waiting)
    assert w.free("a") == 2_000
    assert w.session("s").interrupts == 1


class Answers(Miser):
    """Answers `place` by what it is told, whatever that is."""

    answer: object = None

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize("answer", [None, "a", True])
def test_what_is_neither_place_nor_hold_is_a_defect_of_the_policy_and_says_so(answer: object) -> None:
    policy = Answers()
    policy.answer = answer
    w = World(policy, a=2_000)
    with pytest.raises(
        PolicyAnswerError, match=rf"policy tao: place answered {answer!r} .*a Place or a Hold"
    ):
        w.arrive("s", "t1")
    assert not w.scheduler.view.sessions
    policy.answer = Place(ReplicaId("a"), Reason.RULE)
    w.arrive("s", "t1")
    policy.answer = answer
    with pytest.raises(
        PolicyAnswerError, match=f"place answered {answer!r}"
    ):  # beside a turn on the engine too
        w.arrive("s", "t2")
    assert list(w.scheduler.view.turns) == ["t1"]


class Weighs(Miser):
    """Weighs every session by what it is told."""

    weight: object = 100

    def weight_tokens(self, session: Session) -> int:
        return self.weight  # type: ignore[return-value]


@pytest.mark.parametrize("weight", [-1, float("nan"), 1500.0, None, "1500"])
def test_a_weight_that_would_spoil_the_ledger_is_a_defect_of_the_policy_and_says_so(weight: object) -> None:
    policy = Weighs()
    policy.weight = weight
    w = World(policy, a=2_000)
    told = rf"policy tao: weight_tokens answered {weight!r} .*an int of at least 0"
    with pytest.raises(PolicyAnswerError, match=told):
        w.arrive("s", "t1")
    policy.weight = 100
    w.arrive("s", "t1")
    policy.placements, policy.due, policy.weight = [(SessionId("s"), ReplicaId("a"))], 0.0, weight
    with pytest.raises(PolicyAnswerError, match=told):
        w.wake()
    assert w.free("a") == 2_000, "nothing of it is booked"


class AtTheBoundary(Miser):
    """Answers what it is told to when a turn has ended."""

    keeps: bool | None = True

    def keeps_admission(self, view: View, session: Session, at: float) -> bool | None:
        return self.keeps


@pytest.mark.parametrize(
    ("keeps", "told"),
    [(True, []), (False, [InterruptSession("s", "a", Interruption.GAVE_WAY)]), (None, [])],  # type: ignore[arg-type]
    ids=["keeps it", "gives way", "had it for the turn"],
)
def test_who_gives_way_at_the_end_of_its_turn_is_told_of_as_interrupted(
    keeps: bool | None, told: list[InterruptSession]
) -> None:
    policy = AtTheBoundary()
    policy.keeps = keeps
    w = World(policy, a=2_000)
    w.arrive("s", "t1")
    policy.placements, policy.due = [(SessionId("s"), ReplicaId("a"))], 0.0
    w.wake()
    assert w.finish("t1") == told
    assert w.session("s").interrupts == len(told)
    assert (w.session("s").home, "s" in w.scheduler.view.pool) == (("a", False) if keeps else (None, True))
    assert w.free("a") == (2_000 - w.reserved("a"))
    assert (w.reserved("a") > 0) is bool(keeps)
    assert [fact for fact in policy.facts if isinstance(fact, SessionInterrupted)] == []


def test_a_policy_may_interrupt_where_there_is_room() -> None:
    w, miser = placed()
    w.resize("a", 10_000)
    w.finish("t1")
    miser.victims, miser.placements, miser.due = [SessionId("s")], [], w.at
    [interrupt] = w.wake()
    assert interrupt == InterruptSession("s", "a", Interruption.RULE)  # type: ignore[arg-type]


def test_a_rule_places_nobody_where_no_replica_serves_it() -> None:
    miser = Miser()
    w = World(miser)
    w.join("a", 10_000, models=("x",))
    w.arrive("s", "t1", model="y")
    w.arrive("r", "u1", model="x")
    miser.placements, miser.due = [(SessionId("s"), ReplicaId("a")), (SessionId("r"), ReplicaId("a"))], 0.0
    assert [admit.session for admit in of_kind(w.wake(), AdmitSession)] == ["r"]
    assert isinstance(w.session("s").phase, Waiting)


def test_placing_a_session_that_waits_for_nothing_is_a_defect_of_the_policy_and_says_so() -> None:
    w, miser = placed()
    miser.placements, miser.due = [(SessionId("s"), ReplicaId("a"))], 0.0
    with pytest.raises(AssertionError, match="s is not in the waiting pool: Running"):
        w.wake()


class Believer(Watched):
    """Selects all that a plan says, without asking whether it fits still."""

    def __init__(self) -> None:
        super().__init__(make_policy("tao"))

    def select(
        self, view: View, plan: PlanReady, changed: Iterable[SessionId], at: float
    ) -> Sequence[Assignment]:
        return plan.assignments


def test_what_a_policy_selects_from_a_plan_is_placed_only_where_it_fits() -> None:
    """Each placement counts before the next one is looked at."""
    w = World(Believer(), a=10_000)
    w.arrive("x", "x1", 9_000)
    for session, tokens in (("p", 6_000), ("q", 5_000), ("r", 2_000)):
        w.arrive(session, f"{session}1", tokens)
    w.after(1).end("x")
    w.finish("x1", 9_000, 0)
    [compute] = of_kind(w.wake(), ComputePlan)
    admits = of_kind(w.answer(compute, ("p", "a"), ("q", "a"), ("r", "a")), AdmitSession)
    assert [admit.session for admit in admits] == ["p", "r"]
    assert isinstance(w.session("q").phase, Waiting)
    assert w.free("a") >= 0
