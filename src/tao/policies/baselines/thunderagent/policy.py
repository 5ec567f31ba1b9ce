"""ThunderAgent's tick and its admission of new programs, as a policy. Source: its `scheduler/router.py`, main a7eef77.

The tick resumes first and pauses then; the core asks for interrupts before placements, so both are worked out at once
when the interrupts are asked for, in the source's order. A request of an ACTIVE program always passes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tao.core.commands import Reason
from tao.core.facts import Fact, SessionClosed, ToolStarted
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import Assignment, Decision, Hold, Place, View
from tao.core.session import Replica, ReplicaState, Session, Turn
from tao.policies.baselines.sweep import Sweep
from tao.policies.baselines.thunderagent.idleness import IdleWeight
from tao.policies.baselines.thunderagent.pausing import Marking, pause
from tao.policies.baselines.thunderagent.programs import (
    BUFFER_TOKENS,
    Group,
    acting_on,
    group_of,
    of_session,
    of_shadow,
    reasoning_on,
    remaining_for_resume,
    remaining_tokens,
)
from tao.policies.baselines.thunderagent.resuming import Paused, PauseSizes, Targets, resume
from tao.policies.baselines.thunderagent.shadows import Shadows
from tao.policies.baselines.unplanned import Unplanned, is_home_up


@dataclass(frozen=True, slots=True)
class Parts:
    """What the variants differ in."""

    tick_seconds: float
    idle_weight: IdleWeight
    marking: Marking
    targets: Targets
    pause_sizes: PauseSizes
    shadows: Shadows


class ThunderAgent(Unplanned):
    """Programs are admitted while there is room for them, paused and resumed by a tick."""

    def __init__(self, name: str, parts: Parts) -> None:
        self._name = name
        self._parts = parts
        self._sweep = Sweep(parts.tick_seconds)
        self._marked: dict[SessionId, None] = {}
        self._to_place: list[Assignment] = []

    @property
    def name(self) -> str:
        return self._name

    def weight_tokens(self, session: Session) -> int:
        """`tokens + b`."""
        return session.live_tokens + BUFFER_TOKENS

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        if session.home is not None and is_home_up(view, session):
            return Place(session.home, Reason.HOME)
        shadow = self._parts.shadows.of(session.id)
        if shadow is not None and shadow.replica is not None and self._is_up(view, shadow.replica):
            return Place(
                shadow.replica, Reason.RULE
            )  # it is still ACTIVE on its replica, for all ThunderAgent knows
        if view.pool or any(True for _ in self._parts.shadows.paused()):
            return Hold("others are paused or wait: the next tick decides")
        room = [
            r
            for r in view.eligible_replicas(session)
            if self._remaining(view, r.id) >= self.weight_tokens(session)
        ]
        if not room:
            return Hold("no replica has room: the next tick decides")
        return Place(min(room, key=lambda r: self._program_tokens(view, r)).id, Reason.ROOM)

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        return session.id not in self._marked

    def next_planning_at(self, view: View, at: float) -> float | None:  # noqa: ARG002
        return self._sweep.next_at(view)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        """The tick. What it resumes is kept for `decide`."""
        booked = self._resume(view, at)
        interrupted: list[SessionId] = []
        for replica in view.up_replicas():
            over_tokens = booked.get(replica.id, 0) - self._remaining(view, replica.id)
            if over_tokens > 0:
                interrupted += self._pause(view, replica.id, over_tokens)
        return interrupted

    def decide(self, view: View, at: float) -> Decision:  # noqa: ARG002
        self._sweep.ticked(at)
        placements, self._to_place = self._to_place, []
        return Decision(placements)

    def observe(self, view: View, fact: Fact) -> None:
        self._sweep.observe(fact)
        self._parts.pause_sizes.observe(view, fact)
        self._parts.shadows.observe(view, fact)
        if isinstance(fact, ToolStarted | SessionClosed):
            self._marked.pop(fact.session, None)  # a mark is used up when the request in flight has ended

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        told = dict(super().explain(view, session, at))
        told["marked_for_pause"] = session.id in self._marked
        told["group"] = group_of(session).name.lower()
        told["room_tokens"] = self._room(view, at)
        return told

    # --- the halves of the tick -----------------------------------------------------------------------------------

    def _resume(self, view: View, at: float) -> dict[ReplicaId, int]:
        """Choose who comes back; shadows at once, sessions through `decide`. Returns the tokens sessions will book."""
        booked: dict[ReplicaId, int] = {}
        for program, replica in resume(self._paused(view, at), self._room(view, at), self._parts.targets):
            if program.shadow is not None:
                self._parts.shadows.move(program.shadow, replica)
            else:
                self._to_place.append((program.id, replica))
                booked[replica] = booked.get(replica, 0) + program.need_tokens
        return booked

    def _pause(self, view: View, replica: ReplicaId, over_tokens: int) -> list[SessionId]:
        shadows = self._parts.shadows
        interrupted: list[SessionId] = []
        paused, over_tokens = pause(over_tokens, acting_on(view, shadows, replica))
        for program in paused:
            if program.shadow is not None:
                shadows.move(program.shadow, None)
            else:
                interrupted.append(program.id)
        if over_tokens > 0:
            reasoning = list(reasoning_on(view, replica))
            marked_tokens = sum(p.need_tokens for p in reasoning if p.id in self._marked)
            unmarked = [p for p in reasoning if p.id not in self._marked]
            for program in self._parts.marking.marks(over_tokens, unmarked, marked_tokens):
                self._marked[program.id] = None
        return interrupted

    def _paused(self, view: View, at: float) -> Iterator[Paused]:
        for session_id in view.pool:
            session = view.sessions[session_id]
            origin = session.placement.replica if session.placement is not None else None
            waited_seconds = view.waited_seconds(session, at)
            size = self._parts.pause_sizes.of(session)
            yield Paused(of_session(session), group_of(session), size, origin, waited_seconds)
        for shadow in self._parts.shadows.paused():
            yield Paused(of_shadow(shadow), Group.ACTING, shadow.tokens, shadow.origin, 0.0)

    # --- budgets --------------------------------------------------------------------------------------------------

    def _room(self, view: View, at: float) -> dict[ReplicaId, int]:
        parts = self._parts
        return {
            replica.id: remaining_for_resume(view, parts.shadows, replica.id, parts.idle_weight, at)
            for replica in view.up_replicas()
        }

    def _remaining(self, view: View, replica: ReplicaId) -> int:
        return remaining_tokens(view, self._parts.shadows, replica)

    def _program_tokens(self, view: View, replica: Replica) -> int:
        """Tokens of the programs on the replica, without their buffers."""
        shadows = list(self._parts.shadows.on(replica.id))
        programs = view.session_count_on(replica.id) + len(shadows)
        return replica.capacity_tokens - self._remaining(view, replica.id) - BUFFER_TOKENS * programs

    @staticmethod
    def _is_up(view: View, replica: ReplicaId) -> bool:
        record = view.replicas.get(replica)
        return record is not None and record.state is ReplicaState.UP
