"""What a policy may answer beyond what those of the catalogue do: the core acts on it, and says so in its commands."""

from collections.abc import Sequence

from core_kit import World, of_kind
from watched import Watched

from tao.core.commands import AdmitSession, DispatchTurn, Interruption, InterruptSession, Reason
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Running, Waiting
from tao.core.ports import Decision, Hold, Place, View
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


def test_a_policy_may_interrupt_where_there_is_room() -> None:
    w, miser = placed()
    w.resize("a", 10_000)
    w.finish("t1")
    miser.victims, miser.placements, miser.due = [SessionId("s")], [], w.at
    [interrupt] = w.wake()
    assert interrupt == InterruptSession("s", "a", Interruption.RULE)  # type: ignore[arg-type]
