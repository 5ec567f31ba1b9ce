"""What the core asks of others, stated by the core: `Policy`; and what it shows them: `View`.

A policy never changes anything: it answers, the core acts, books and logs. It is deterministic, keeps its own state only
from the facts it is told, and reads time from the arguments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tao.core.commands import Reason
from tao.core.events import PlanReady, PrefixNode
from tao.core.facts import Fact
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.plans import PlanRequest
from tao.core.session import Replica, Session, Turn
from tao.values import value

Assignment = tuple[SessionId, ReplicaId]


class PolicyAnswerError(RuntimeError):
    """A policy answered what nothing can be done with; the message names it, the member that was asked, and the answer."""

    def __init__(self, policy: str, member: str, answer: object, due: str) -> None:
        kind = type(answer).__name__
        super().__init__(f"policy {policy}: {member} answered {answer!r:.200} ({kind}); it must be {due}")


class View(Protocol):
    """The live state, to be read only. All orders are deterministic."""

    @property
    def replicas(self) -> Mapping[ReplicaId, Replica]:
        """All replicas in the order in which they joined."""

    @property
    def sessions(self) -> Mapping[SessionId, Session]:
        """All open sessions in the order in which they were opened."""

    @property
    def pool(self) -> Mapping[SessionId, None]:
        """The waiting pool: sessions without admission, in the order in which they entered it."""

    @property
    def planning(self) -> bool:
        """A plan is outstanding."""

    @property
    def held_turns(self) -> int:
        """How many turns are held."""

    @property
    def waiting_sessions(self) -> int:
        """How many sessions of the pool hold turns back: the pool without those whose tools run."""

    @property
    def turns(self) -> Mapping[TurnId, Turn]:
        """All turns that have not ended, held or dispatched."""

    def up_replicas(self) -> Sequence[Replica]:
        """Replicas that take admissions, in the order in which they joined."""

    def eligible_replicas(self, session: Session) -> Sequence[Replica]:
        """Those of `up_replicas` that serve the model that the session asks for. Only they may be chosen for it."""

    def free_tokens(self, replica: ReplicaId) -> int:
        """Capacity minus reservations; negative when overcommitted."""

    def shared_tokens(self, session: Session, replica: ReplicaId) -> int:
        """Tokens of the session's shared prefix that others have booked on the replica: its admission costs as much less."""

    def freed_tokens(self, replica: ReplicaId, sessions: Iterable[SessionId]) -> Iterator[int]:
        """What would be free again by each of these sessions, all admitted on the replica, if they gave way one after the
        other: what several share with the last of them, if nobody else holds it.
        """

    def free_slots(self, replica: ReplicaId) -> int | None:
        """How many more sessions may be admitted there, negative when overcommitted; None where nothing bounds them."""

    def beside_tokens(self, session: Session) -> int:
        """What the held turns of a session of the pool will book beside its admission: all but the first."""

    def session_count_on(self, replica: ReplicaId) -> int:
        """How many sessions hold an admission on the replica."""

    def admitted_on(self, replica: ReplicaId) -> Iterator[Session]:
        """Sessions that hold an admission on the replica, in the order in which they got it."""

    def acting_on(self, replica: ReplicaId) -> Iterator[Session]:
        """Sessions admitted on the replica whose tools run: those that may be interrupted."""

    def acting_tokens(self, replica: ReplicaId) -> int:
        """What sessions whose tools run have reserved on the replica, without what they share with turns in flight."""

    def waited_seconds(self, session: Session, at: float) -> float:
        """How long the session's first held turn has waited; 0 where none is held. Bounds on waiting count anew from the
        end of an update of weights, and so does this.
        """


@value
class Place:
    """Send the turn to this replica now."""

    replica: ReplicaId
    reason: Reason


@value
class Hold:
    """Keep the turn; the session stays in the waiting pool until a decision places it."""

    why: str


@value
class Decision:
    """What to do at a planning point: place by rule at once, then plan the rest jointly."""

    placements: Sequence[Assignment] = ()
    request: PlanRequest | None = None


class Policy(Protocol):
    """How sessions are valued, placed, kept and interrupted.

    `name` is the kebab-case name by which users choose it.
    """

    @property
    def name(self) -> str: ...

    def weight_tokens(self, session: Session) -> int:
        """What the session's admission costs where it shares nothing: footprint plus reserve."""

    def shared_prefix(self, session: Session) -> tuple[PrefixNode, ...]:
        """Which part of that weight is booked once on a replica, however many sessions hold it; empty: none."""

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        """Asked for each arriving turn while a replica is up that serves it. Only `View.eligible_replicas` may be named;
        for any other one the core takes the roomiest of them.
        """

    def keeps_admission(self, view: View, session: Session, at: float) -> bool | None:
        """Asked when the last turn in flight has ended: does the session keep its admission while its tool runs?

        False: it gives way, which counts as an interrupt. None: the admission was for the turn and no longer.
        """

    def next_planning_at(self, view: View, at: float) -> float | None:
        """When `decide` should be called next; None: not before something happens."""

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        """Asked first at a planning point: whose admission shall end? Only sessions of `View.acting_on`."""

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        """Asked after the interrupts: which acting sessions are overdue beyond belief? They become Away."""

    def decide(self, view: View, at: float) -> Decision:
        """Asked next, when the interrupts are done. A request is only taken when no plan is outstanding."""

    def select(
        self, view: View, plan: PlanReady, changed: Iterable[SessionId], at: float
    ) -> Sequence[Assignment]:
        """Which assignments of a finished plan still hold, in order. `changed`: sessions whose epoch moved on."""

    def observe(self, view: View, fact: Fact) -> None:
        """Learn something. Called before the core asks anything because of it."""

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        """The values behind the session's place in the pool, as JSON-ready data."""
