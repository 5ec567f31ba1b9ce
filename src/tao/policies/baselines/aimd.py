"""Congestion control on the number of active sessions per replica, after CONCUR (arXiv 2601.22705).

A replica has a window of sessions that may be active. Every interval the window grows by a constant while the cache
copes, and shrinks by a factor when much of the KV capacity is in use and returning prefixes miss. It counts sessions,
not tokens: how large a session is does not matter to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tao.core.commands import Reason
from tao.core.facts import CacheVoided, Fact, TurnSettled
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Waiting
from tao.core.ports import Decision, Hold, Place, View
from tao.core.session import Session, Turn
from tao.policies.baselines.cache_aware import kv_usage
from tao.policies.baselines.sweep import Sweep
from tao.policies.baselines.unplanned import Unplanned, is_home_up


@dataclass(frozen=True, slots=True)
class WindowLaw:
    """`w + step` while `usage < usage_low`; `w * factor` when `usage > usage_high` and `hit_rate < hit_rate_low`; else `w`.

    Usage is the share of KV capacity that the admitted sessions hold, 0 to 1; the hit rate is that of the turns that
    ended within the interval. The window stays between 1 and `window_max`.
    """

    step: float = 2.0
    factor: float = 0.5
    usage_low: float = 0.8
    usage_high: float = 0.95
    hit_rate_low: float = 0.8
    window_max: float = 4096.0

    def next(self, window: float, usage: float, hit_rate: float | None) -> float:
        """The window of the next interval. `hit_rate` None: no turn ended, so nothing is known."""
        if usage < self.usage_low:
            window += self.step
        elif usage > self.usage_high and hit_rate is not None and hit_rate < self.hit_rate_low:
            window *= self.factor
        return min(max(window, 1.0), self.window_max)


@dataclass(slots=True)
class _Signal:
    """A replica's window, and what the turns since the last tick found in its cache."""

    window: float
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def take_hit_rate(self) -> float | None:
        """The hit rate since the last call."""
        rate = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        self.prompt_tokens = self.cached_tokens = 0
        return rate


class Aimd(Unplanned):
    """Additive increase, multiplicative decrease of the number of active sessions."""

    name = "aimd"

    def __init__(
        self, law: WindowLaw | None = None, interval_seconds: float = 1.0, window_first: float = 16.0
    ) -> None:
        self._law = law or WindowLaw()
        self._window_first = window_first
        self._sweep = Sweep(interval_seconds)
        self._signals: dict[ReplicaId, _Signal] = {}

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:  # noqa: ARG002
        if session.home is not None and is_home_up(view, session):
            return Place(session.home, Reason.HOME)
        if view.waiting_sessions:
            return Hold("others wait for a place in a window")
        chosen = self._replica_for(view, session, {})
        return Hold("every window is full") if chosen is None else Place(chosen, Reason.RULE)

    def keeps_admission(self, view: View, session: Session, at: float) -> bool:  # noqa: ARG002
        """A session beyond the window gives way at its tool boundary."""
        home = session.home
        return home is None or view.session_count_on(home) <= int(self._signal(home).window)

    def next_planning_at(self, view: View, at: float) -> float | None:
        if view.waiting_sessions and any(self._places(view, r.id, {}) > 0 for r in view.up_replicas()):
            waiting = (s for s in map(view.sessions.__getitem__, view.pool) if isinstance(s.phase, Waiting))
            if any(self._replica_for(view, session, {}) is not None for session in waiting):
                return at
        return self._sweep.next_at(view)

    def interrupts(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def decide(self, view: View, at: float) -> Decision:
        due_at = self._sweep.next_at(view)
        if due_at is not None and due_at <= at:
            self._adapt(view)
            self._sweep.ticked(at)
        taken: dict[ReplicaId, int] = {}
        placements = []
        waiting = [s for s in map(view.sessions.__getitem__, view.pool) if isinstance(s.phase, Waiting)]
        for session in sorted(
            waiting, key=lambda s: not s.turns_finished
        ):  # those under way first, else as they came
            chosen = self._replica_for(view, session, taken)
            if chosen is None:
                continue
            taken[chosen] = taken.get(chosen, 0) + 1
            placements.append((session.id, chosen))
        return Decision(placements)

    def observe(self, view: View, fact: Fact) -> None:  # noqa: ARG002
        self._sweep.observe(fact)
        match fact:
            case TurnSettled(cached_tokens=int(cached_tokens)):
                signal = self._signal(fact.replica)
                signal.prompt_tokens += fact.prompt_tokens
                signal.cached_tokens += cached_tokens
            case CacheVoided(replica=replica):
                self._signals.pop(replica, None)

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:
        told = dict(super().explain(view, session, at))
        told["windows"] = {r.id: self._signal(r.id).window for r in view.up_replicas()}
        told["active_sessions"] = {r.id: view.session_count_on(r.id) for r in view.up_replicas()}
        return told

    def _adapt(self, view: View) -> None:
        for replica in view.up_replicas():
            signal = self._signal(replica.id)
            signal.window = self._law.next(signal.window, kv_usage(view, replica), signal.take_hit_rate())

    def _signal(self, replica: ReplicaId) -> _Signal:
        return self._signals.setdefault(replica, _Signal(self._window_first))

    def _places(self, view: View, replica: ReplicaId, taken: Mapping[ReplicaId, int]) -> int:
        window = int(self._signal(replica).window)
        return window - view.session_count_on(replica) - taken.get(replica, 0)

    def _replica_for(self, view: View, session: Session, taken: Mapping[ReplicaId, int]) -> ReplicaId | None:
        """Where it was last if that has a place, else where most places are."""
        last = session.placement.replica if session.placement is not None else None
        places = {
            replica.id: self._places(view, replica.id, taken) for replica in view.eligible_replicas(session)
        }
        free = [replica for replica, count in places.items() if count > 0]
        return max(free, key=lambda replica: (replica == last, places[replica]), default=None)
