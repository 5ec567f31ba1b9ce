"""Progress-TTL, the program scheduler proposed for vLLM's router (RFC 285, pull request 286).

An idle session keeps its admission for a computed time-to-live; room for growth is set aside before anybody is admitted;
who waits comes back first where it was (most recently used first), then elsewhere in order of waiting, and by force
after a bound that follows from the work ahead. The formulas of time are in `time_to_live`.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from tao.core.commands import Reason
from tao.core.facts import Fact, SessionClosed, SessionInterrupted, ToolEnded, ToolStarted, TurnSettled
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Acting, Waiting
from tao.core.ports import Decision, Hold, Place, View
from tao.core.session import Replica, Session, Turn
from tao.policies.baselines.time_to_live import (
    TTL_SECONDS_MAX,
    GapHistory,
    decode_tokens_per_second,
    prefill_impact_seconds,
    time_to_live_seconds,
)
from tao.policies.baselines.unplanned import Unplanned, is_home_up
from tao.policies.pacing import OnChange

DECODE_BUFFER_TOKENS = 100
ACTIVE_SESSIONS_MAX = 64
CROSS_REPLICA_HEADROOM = 1.2
TARGET_ROUNDS_MAX = 14
FORCED_AFTER_SECONDS = (30.0, 300.0)
SAMPLES_MAX = 100
"""How many of the newest values each rolling mean keeps."""


class RollingMean:
    """The mean of the newest values."""

    def __init__(self) -> None:
        self._values: deque[int] = deque()
        self._sum = 0

    def add(self, value: int) -> None:
        """One more value."""
        self._values.append(value)
        self._sum += value
        if len(self._values) > SAMPLES_MAX:
            self._sum -= self._values.popleft()

    @property
    def value(self) -> float:
        """The mean; 0 before there is any value."""
        return self._sum / len(self._values) if self._values else 0.0


class Progress:
    """What sessions do with an admission: rounds until they lose it, growth and output per round."""

    def __init__(self) -> None:
        self.growth_tokens = RollingMean()
        self.output_tokens = RollingMean()
        self._rounds_per_stay = RollingMean()
        self._rounds: dict[SessionId, int] = {}  # of the present stay
        self._footprint_tokens: dict[SessionId, int] = {}

    @property
    def target_rounds(self) -> int:
        """`clamp(ceil(2 * mean rounds), 1, 14)`."""
        return min(max(ceil(2.0 * self._rounds_per_stay.value), 1), TARGET_ROUNDS_MAX)

    def growth_reserve_tokens(self, admitted: Iterable[Session]) -> float:
        """`mean growth * (target + sum of remaining rounds)`; what remains is what is left to the target, at least 0."""
        target, rounds = self.target_rounds, self._rounds
        left = [target - rounds.get(session.id, 0) for session in admitted]
        remaining = sum(count for count in left if count > 0)
        return self.growth_tokens.value * (target + remaining)

    def round_ended(self, session: Session, output_tokens: int) -> None:
        """A turn of the main line has finished."""
        self._rounds[session.id] = self._rounds.get(session.id, 0) + 1
        before = self._footprint_tokens.get(session.id)
        if before is not None:
            self.growth_tokens.add(max(0, session.footprint_tokens - before))
        self._footprint_tokens[session.id] = session.footprint_tokens
        self.output_tokens.add(output_tokens)

    def stay_ended(self, session: SessionId) -> None:
        """The session gave its admission back."""
        rounds = self._rounds.pop(session, 0)
        if rounds:
            self._rounds_per_stay.add(rounds)

    def forget(self, session: SessionId) -> None:
        """The session is closed."""
        self.stay_ended(session)
        self._footprint_tokens.pop(session, None)


@dataclass(slots=True)
class Rank:
    """A replica while admissions are decided. `free_tokens`: capacity less reservations and the growth reserve."""

    replica: Replica
    active_sessions: int
    free_tokens: float

    def takes(self, need_tokens: float) -> bool:
        """Whether one more session fits."""
        return self.active_sessions < ACTIVE_SESSIONS_MAX and need_tokens <= self.free_tokens

    def take(self, weight_tokens: int, progress: Progress) -> None:
        """One more session is admitted, with the growth of its rounds to the target."""
        self.active_sessions += 1
        self.free_tokens -= weight_tokens + progress.growth_tokens.value * progress.target_rounds


class ProgressTtl(Unplanned):
    """Sessions under a token budget with room to grow, and a computed time-to-live for idle ones."""

    name = "progress-ttl"

    def __init__(self) -> None:
        self._pacing = OnChange()
        self._gaps = GapHistory()
        self._progress = Progress()
        self._ttl_seconds: dict[SessionId, float] = {}
        self._last_used_at: dict[SessionId, float] = {}

    def weight_tokens(self, session: Session) -> int:
        """The context so far and a buffer for decoding."""
        return session.live_tokens + DECODE_BUFFER_TOKENS

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        if session.home is not None and is_home_up(view, session):
            return Place(session.home, Reason.HOME)
        if view.waiting_sessions:
            return Hold("others wait")
        bound = _bound(session, _serving(view, session, self._ranks(view)))
        if bound.takes(self.weight_tokens(session)):
            return Place(bound.replica.id, Reason.ROOM)
        return Hold("no room to run and grow where it belongs")

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        """Idle sessions are not reclaimed within their time-to-live; under pressure the one whose turn ended gives way."""
        return session.home is None or view.free_tokens(session.home) >= 0

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self._pacing.next_at(view, at)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:
        """Those whose time-to-live is over. Asked only while somebody waits or a replica is overcommitted."""
        expired: list[SessionId] = []
        for replica in view.up_replicas():
            for session in view.acting_on(replica.id):
                assert isinstance(session.phase, Acting), session
                ttl_seconds = self._ttl_seconds.get(session.id, TTL_SECONDS_MAX)
                if at - session.phase.since >= ttl_seconds:
                    expired.append(session.id)
        return expired

    def decide(self, view: View, at: float) -> Decision:
        self._pacing.planned(at)
        ranks = self._ranks(view)
        if not ranks:
            return Decision()
        pool = map(view.sessions.__getitem__, view.pool)
        waiting = [s for s in pool if isinstance(s.phase, Waiting) and view.eligible_replicas(s)]
        forced_after_seconds = {
            replica: self._forced_after_seconds(view, rank, len(waiting)) for replica, rank in ranks.items()
        }
        placements: dict[SessionId, ReplicaId] = {}

        def admit(session: Session, rank: Rank) -> None:
            rank.take(self.weight_tokens(session), self._progress)
            placements[session.id] = rank.replica.id

        for session in waiting:
            bound = _bound(session, _serving(view, session, ranks))
            if view.waited_seconds(session, at) >= forced_after_seconds[bound.replica.id]:
                admit(session, bound)
        for session in sorted(_rest(waiting, placements), key=self._most_recently_used):
            bound = _bound(session, _serving(view, session, ranks))
            if bound.takes(self.weight_tokens(session)):
                admit(session, bound)
        held_up: dict[str, None] = {}  # the first that does not fit holds up those who ask for the same model
        for session in _rest(waiting, placements):
            roomiest = max(_serving(view, session, ranks).values(), key=lambda rank: rank.free_tokens)
            if session.model in held_up or not roomiest.takes(
                CROSS_REPLICA_HEADROOM * self.weight_tokens(session)
            ):
                held_up[session.model] = None
            else:
                admit(session, roomiest)
        return Decision(list(placements.items()))

    def observe(self, view: View, fact: Fact) -> None:
        self._pacing.observe(fact)
        match fact:
            case TurnSettled(finished=True):
                session = view.sessions[fact.session]
                if session.side_of is None:
                    self._progress.round_ended(session, fact.output_tokens)
                    self._last_used_at[session.id] = fact.at
            case ToolStarted():
                self._tool_started(view.sessions[fact.session])
            case ToolEnded():
                self._gaps.add(fact.duration_seconds)
            case SessionInterrupted():
                self._progress.stay_ended(fact.session)
            case SessionClosed():
                self._progress.forget(fact.session)
                self._ttl_seconds.pop(fact.session, None)
                self._last_used_at.pop(fact.session, None)

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        told = dict(super().explain(view, session, at))
        told["time_to_live_seconds"] = self._ttl_seconds.get(session.id)
        told["target_rounds"] = self._progress.target_rounds
        told["free_after_growth_tokens"] = {
            replica: round(rank.free_tokens) for replica, rank in self._ranks(view).items()
        }
        return told

    def _tool_started(self, session: Session) -> None:
        if session.home is None:
            self._progress.stay_ended(session.id)
        gaps = self._gaps.distribution()
        impact_seconds = prefill_impact_seconds(session.footprint_tokens)
        self._ttl_seconds[session.id] = (
            min(TTL_SECONDS_MAX, impact_seconds)
            if gaps is None
            else time_to_live_seconds(gaps, impact_seconds)
        )

    def _most_recently_used(self, session: Session) -> tuple[float, SessionId]:
        return -self._last_used_at.get(session.id, 0.0), session.id

    def _ranks(self, view: View) -> dict[ReplicaId, Rank]:
        ranks = {}
        for replica in view.up_replicas():
            reserve_tokens = self._progress.growth_reserve_tokens(view.admitted_on(replica.id))
            free_tokens = view.free_tokens(replica.id) - reserve_tokens
            ranks[replica.id] = Rank(replica, view.session_count_on(replica.id), free_tokens)
        return ranks

    def _forced_after_seconds(self, view: View, rank: Rank, waiting: int) -> float:
        """`clamp(3 * work ahead / throughput, 30, 300)`; the work ahead is a turn's output for each session before it."""
        replica = rank.replica
        batch = replica.turns_in_flight
        least, most = FORCED_AFTER_SECONDS
        if not batch:
            return least
        context_tokens = replica.capacity_tokens - view.free_tokens(replica.id)
        work_tokens = self._progress.output_tokens.value * (batch + waiting)
        return min(max(3.0 * work_tokens / decode_tokens_per_second(batch, context_tokens), least), most)


def _serving(view: View, session: Session, ranks: Mapping[ReplicaId, Rank]) -> Mapping[ReplicaId, Rank]:
    """The ranks of the replicas that serve what the session asks for."""
    eligible = view.eligible_replicas(session)
    return ranks if len(eligible) == len(ranks) else {replica.id: ranks[replica.id] for replica in eligible}


def _bound(session: Session, ranks: Mapping[ReplicaId, Rank]) -> Rank:
    """Its own replica: where it was last; for a new one, where fewest sessions are active."""
    last = ranks.get(session.placement.replica) if session.placement is not None else None
    return last if last is not None else min(ranks.values(), key=lambda rank: rank.active_sessions)


def _rest(waiting: Iterable[Session], placements: Mapping[SessionId, ReplicaId]) -> list[Session]:
    return [session for session in waiting if session.id not in placements]
