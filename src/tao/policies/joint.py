"""The joint policy: evaluate the whole waiting pool, decide for all of it at once (method, sections 2-5).

`JointPolicy` is a frame around exchangeable parts: how credit is valued, who counts as ready, who is interrupted, who is
given up on, how much room is offered, when to plan, and what a late plan is still good for. `tao-paper`, `tao` and the
ablations are choices of parts (`catalogue`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from tao.core.commands import Reason
from tao.core.events import PlanReady, PrefixNode
from tao.core.facts import Fact, ReplicaChanged
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Acting
from tao.core.plans import Candidate, PlanRequest
from tao.core.ports import Assignment, Decision, Hold, Place, View
from tao.core.session import Replica, ReplicaState, Session, Turn
from tao.policies.credit import Credit
from tao.policies.fruitless import FruitlessDecision, Question
from tao.policies.interruption import InterruptOrder, Lease, overcommitted_interrupts
from tao.policies.needs import Need, PoolNeeds
from tao.policies.pacing import Pacing
from tao.policies.readiness import Readiness
from tao.policies.reserve import RESERVE_TOKENS, AdmissionReserve, FixedReserve
from tao.policies.room import AdmissionRoom
from tao.policies.sharing import Sharing
from tao.policies.stale import StalePlan
from tao.policies.survival import MeasuredSurvival
from tao.policies.urgency import ranks_of


@dataclass(frozen=True, slots=True)
class Parts:
    """The exchangeable parts of a joint policy.

    `solver`: the planner's name for its solver. `wait_seconds_max`: who has waited so long comes first; None: no matter.
    `survival`: what is measured of caches, whether credit goes by it or not. `books_shared_once`: whether what several
    sessions begin with takes room on a replica once, as on the engine. `reserve`: what is booked beside a context.
    """

    credit: Credit
    readiness: Readiness
    interrupt_order: InterruptOrder
    lease: Lease
    room: AdmissionRoom
    pacing: Pacing
    stale_plan: StalePlan
    solver: str
    wait_seconds_max: float | None = None
    survival: MeasuredSurvival = field(default_factory=MeasuredSurvival)
    books_shared_once: bool = True
    reserve: AdmissionReserve = field(default_factory=FixedReserve)


class JointPolicy:
    """Admits, interrupts and restarts whole sessions by one decision over the waiting pool."""

    def __init__(self, name: str, parts: Parts) -> None:
        self._name = name
        self._parts = parts
        self._last = FruitlessDecision()
        self._needs = PoolNeeds(self._needed_tokens)
        self._reserve_tokens = RESERVE_TOKENS

    @property
    def name(self) -> str:
        return self._name

    @property
    def readiness(self) -> Readiness:
        """The part that predicts returns: its predictor may be saved and loaded, its calibration shown."""
        return self._parts.readiness

    @property
    def survival(self) -> MeasuredSurvival:
        """What returns have taught of the replicas' caches, and how well credit foretells."""
        return self._parts.survival

    def weight_tokens(self, session: Session) -> int:
        """Context so far plus the reserve."""
        return session.live_tokens + self._reserve_tokens

    def shared_prefix(self, session: Session) -> tuple[PrefixNode, ...]:
        return session.shared_prefix if self._parts.books_shared_once else ()

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        if session.home is not None and view.replicas[session.home].state is ReplicaState.UP:
            return Place(session.home, Reason.HOME)
        others = len(view.pool) - (session.id in view.pool)
        if others and _competes(view, session):
            return Hold("others wait too: one decision places all")
        weight_tokens = self.weight_tokens(session)
        credit = self._parts.credit.tokens(session, at)
        offer = self._offered_tokens
        roomy = [
            replica
            for replica in view.eligible_replicas(session)
            if offer(view, replica) + view.shared_tokens(session, replica.id) >= weight_tokens
        ]
        if not roomy:
            return Hold("no replica has room")
        best = max(roomy, key=lambda r: (credit.get(r.id, 0), view.free_tokens(r.id)))
        return Place(best.id, Reason.ROOM)

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        return True

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self._parts.pacing.next_at(view, at)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        parts = self._parts
        return overcommitted_interrupts(view, parts.room.reserve_tokens, parts.interrupt_order, at)

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:
        return self._parts.lease.lapsed(view, at)

    def decide(self, view: View, at: float) -> Decision:
        self._parts.pacing.planned(at)
        free_tokens = {r.id: self._offered_tokens(view, r) for r in view.up_replicas()}
        sharing = Sharing(view, self.shared_prefix)
        needs = [sharing.less(need, free_tokens) for need in self._needs.of(view)]
        if not _somebody_fits(needs, free_tokens):
            return Decision()  # nobody can be placed, and nobody has to be kept from the room of another
        everywhere = tuple(free_tokens)
        taking_part = self._taking_part(view, needs, free_tokens, everywhere, at)
        if taking_part is None:
            return Decision()
        ranks = ranks_of([view.sessions[name] for name in taking_part])
        candidates = tuple(
            self._candidate(view, need, everywhere, at, ranks.get(name, 0))
            for name, need in taking_part.items()
        )
        parts = self._parts
        slots = {replica: view.free_slots(replica) for replica in free_tokens}
        free_slots = {replica: max(0, free) for replica, free in slots.items() if free is not None}
        return Decision(
            request=PlanRequest(
                parts.solver, free_tokens, candidates, parts.wait_seconds_max, free_slots or None
            )
        )

    def _taking_part(
        self,
        view: View,
        needs: Sequence[Need],
        free_tokens: Mapping[ReplicaId, int],
        everywhere: tuple[ReplicaId, ...],
        at: float,
    ) -> Mapping[SessionId, Need] | None:
        """Who is worth a plan: whoever fits somewhere, and whoever waited too long. None where a plan can place nobody."""
        bound_seconds = self._parts.wait_seconds_max
        most_tokens = max(free_tokens.values())
        up = view.up_replicas()
        weights: dict[SessionId, tuple[int, bool]] = {}
        worthwhile: dict[SessionId, Need] = {}
        somebody_fits = choosy = False
        for need in needs:
            session, fits = need.session, need.tokens <= most_tokens
            # who waited too long takes part even where it fits nowhere: room is kept for it
            is_aged = bound_seconds is not None and view.waited_seconds(session, at) >= bound_seconds
            if not fits and not is_aged:
                continue
            serving = view.eligible_replicas(session)
            if serving:  # else nobody serves it: no plan can place it
                weights[session.id] = need.tokens, is_aged
                worthwhile[session.id] = need
                somebody_fits = somebody_fits or fits
                choosy = choosy or need.only is not None
                choosy = choosy or (
                    (serving is not up or session.pinned is not None)
                    and _eligible(view, session, everywhere) is not everywhere
                )
        if not somebody_fits or self._last.would_come_again(
            None if choosy else Question(weights, free_tokens)
        ):
            return None
        return worthwhile

    def select(
        self,
        view: View,
        plan: PlanReady,
        changed: Iterable[SessionId],
        at: float,  # noqa: ARG002
    ) -> Sequence[Assignment]:
        self._last.answered(plan)
        return self._parts.stale_plan.select(
            view,
            plan.assignments,
            changed,
            lambda session, replica: (
                self._needed_tokens(view, session) - view.shared_tokens(session, replica)
            ),
        )

    def observe(self, view: View, fact: Fact) -> None:
        if isinstance(fact, ReplicaChanged):
            self._reserve_tokens = self._parts.reserve.tokens(view)
            self._needs.forget()
        self._parts.readiness.observe(fact)
        self._parts.pacing.observe(fact)
        self._parts.survival.observe(view, fact)

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        told: dict[str, object] = {
            "weight_tokens": self.weight_tokens(session),
            "shared_prefix_tokens": sum(piece.tokens for piece in session.shared_prefix),
            "footprint_tokens": session.footprint_tokens,
            "ready": self._parts.readiness.ready(session, at),
            "credit_tokens": self._parts.credit.tokens(session, at),
            "free_tokens": {replica.id: view.free_tokens(replica.id) for replica in view.up_replicas()},
        }
        if isinstance(session.phase, Acting):
            told["return"] = dict(self._parts.readiness.explain(session, at))
        return told

    def _offered_tokens(self, view: View, replica: Replica) -> int:
        """Room for admissions: none where every slot is taken."""
        slots = view.free_slots(replica.id)
        if slots is not None and slots <= 0:
            return 0
        return self._parts.room.offered_tokens(view, replica)

    def _needed_tokens(self, view: View, session: Session) -> int:
        """What it takes to place a session of the pool where nobody shares anything with it."""
        return self.weight_tokens(session) + view.beside_tokens(session)

    def _candidate(
        self, view: View, need: Need, everywhere: tuple[ReplicaId, ...], at: float, rank: int
    ) -> Candidate:
        session = need.session
        eligible = need.only or _eligible(view, session, everywhere)
        credit = self._parts.credit.tokens(session, at)
        placed = session.placement
        return Candidate(
            session=session.id,
            epoch=session.epoch,
            weight_tokens=need.tokens,
            footprint_tokens=session.footprint_tokens,
            ready=self._parts.readiness.ready(session, at),
            credit_tokens={replica: tokens for replica, tokens in credit.items() if replica in eligible},
            waited_seconds=view.waited_seconds(session, at),
            home=placed.replica if placed is not None and placed.replica in everywhere else None,
            eligible=None if eligible is everywhere else eligible,
            rank=rank,
        )


def _somebody_fits(needs: Sequence[Need], free_tokens: Mapping[ReplicaId, int]) -> bool:
    """Whether the session that needs least fits where there is most room."""
    if not needs or not free_tokens:
        return False
    least_tokens: int = min(map(attrgetter("tokens"), needs))
    return least_tokens <= max(free_tokens.values())


def _eligible(view: View, session: Session, everywhere: tuple[ReplicaId, ...]) -> tuple[ReplicaId, ...]:
    """Where it may go: where it is pinned to, else wherever its model is served; `everywhere` itself where that is all."""
    pinned = session.pinned
    if pinned is not None and pinned in everywhere:
        return everywhere if len(everywhere) == 1 else (pinned,)
    serving = view.eligible_replicas(session)
    return everywhere if len(serving) == len(everywhere) else tuple(replica.id for replica in serving)


def _competes(view: View, session: Session) -> bool:
    """Whether another session of the pool may go where this one may: pools of other models have nothing to do with it."""
    mine = {replica.id: None for replica in view.eligible_replicas(session)}
    if len(mine) == len(view.up_replicas()):
        return True
    others = (view.sessions[other] for other in view.pool if other != session.id)
    return any(replica.id in mine for other in others for replica in view.eligible_replicas(other))
