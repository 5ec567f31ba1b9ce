"""Measured survival: how much of a session's prefix is left on a replica after so much else has passed through its cache.

A cache that drops what was used least recently empties with what flows in, not with time: the age of a prefix is the tokens
that the replica computed since, over its capacity (its *turnover*). `SurvivalCurve` learns from each return what share of
the prefix was found at which turnover; `SurvivalCredit` values by it what `HalfLifeCredit` values by the clock. Beyond the
paper (method, section 6). It must not know where a figure is shown.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tao.core.facts import (
    CacheUnwatched,
    CacheVoided,
    Fact,
    ReplicaChanged,
    SessionClosed,
    TurnDispatched,
    TurnSettled,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import Policy, View
from tao.core.session import EvidenceSource, Session
from tao.policies.credit import HALF_LIFE_SECONDS
from tao.policies.creditcalibration import CreditCalibration

TURNOVERS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0)
"""Upper bounds of the bins; beyond the last one there is one more."""

PRIOR_WEIGHT = 1.0
KEPT_SHARE = 0.97
"""What a bin's past weighs after each new return: about 33 returns are remembered, so the curve follows the load."""

SHRUNK_SHARE = 0.8
"""A prompt below this share of what was left behind does not extend it: the history was cut."""


class SurvivalCurve:
    """Of one replica: the expected share of a prefix that is left, by turnover; never rising.

    Before anything is known it falls evenly from all at no turnover to nothing at one whole cache.
    """

    def __init__(self) -> None:
        lower = (0.0, *TURNOVERS)
        upper = (*TURNOVERS, 3.0)
        middles = ((low + high) / 2 for low, high in zip(lower, upper, strict=True))
        self._shares = [max(0.0, 1.0 - middle) for middle in middles]
        self._weights = [PRIOR_WEIGHT] * len(self._shares)
        self._fitted: list[float] | None = None
        self.returns = 0

    def share(self, turnover: float) -> float:
        """Of a prefix at this turnover, from 0 to 1."""
        return self._fit()[bisect_left(TURNOVERS, turnover)]

    def learn(self, turnover: float, share: float) -> None:
        """A session came back and found this share of its prefix."""
        at = bisect_left(TURNOVERS, turnover)
        weight = self._weights[at] * KEPT_SHARE
        self._shares[at] = (self._shares[at] * weight + share) / (weight + 1.0)
        self._weights[at] = weight + 1.0
        self._fitted = None
        self.returns += 1

    def points(self) -> Iterator[tuple[float, float]]:
        """(turnover up to, share) of each bin but the last, which has no bound."""
        return zip(TURNOVERS, self._fit(), strict=False)

    def _fit(self) -> list[float]:
        """The bins made to fall: neighbours that rise are pooled to their weighted mean."""
        if self._fitted is None:
            pools: list[tuple[float, float, int]] = []  # share, weight, bins
            for share, weight in zip(self._shares, self._weights, strict=True):
                pool = (share, weight, 1)
                while pools and pools[-1][0] < pool[0]:
                    before = pools.pop()
                    total = before[1] + pool[1]
                    mean = (before[0] * before[1] + pool[0] * pool[1]) / total
                    pool = (mean, total, before[2] + pool[2])
                pools.append(pool)
            self._fitted = [share for share, _, bins in pools for _ in range(bins)]
        return self._fitted


@dataclass(frozen=True, slots=True)
class Left:
    """What a session had on a replica when its last turn ended there, or where none has, when its watch was lost: its prefix
    then, when, how much had flowed in by then, and of which main line it is (a later one is another context).
    """

    tokens: int
    at: float
    inflow_tokens: int
    line: int


@dataclass(frozen=True, slots=True)
class Return:
    """A session comes back to a replica where it has left a prefix. `told_tokens`: of it, by the engine's KV events."""

    replica: ReplicaId
    left: Left
    at: float
    turnover: float
    told_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Booked:
    """A turn in flight: the tokens that it is taken to compute there, and what it comes back to."""

    replica: ReplicaId
    tokens: int
    back: Return | None


@dataclass(slots=True)
class CacheInflow:
    """What flows into each replica, and what each session left there."""

    _inflow_tokens: dict[ReplicaId, int] = field(default_factory=dict)
    _left: dict[SessionId, dict[ReplicaId, Left]] = field(default_factory=dict)
    _running: dict[TurnId, _Booked] = field(default_factory=dict)

    def observe(self, view: View, fact: Fact) -> tuple[Return, int] | None:
        """Take a fact in. A return whose turn has ended comes back, with the tokens that the engine found in its cache."""
        match fact:
            case TurnDispatched():
                self._dispatched(view, fact)
            case TurnSettled():
                return self._settled(view, fact)
            case SessionClosed(session=session):
                self._left.pop(session, None)
            case CacheVoided(replica=replica):
                for places in self._left.values():
                    places.pop(replica, None)
            case CacheUnwatched(sessions=sessions, replica=replica):
                for known in map(view.sessions.__getitem__, sessions):
                    if self.left(known.id, replica, known.line) is None:  # no turn has ended there
                        self._remember(known, replica, fact.at)
        return None

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone for good; what was left there is void already."""
        self._inflow_tokens.pop(replica, None)

    def left(self, session: SessionId, replica: ReplicaId, line: int) -> Left | None:
        """What this main line of the session left on the replica."""
        known = self._left.get(session, {}).get(replica)
        return known if known is not None and known.line == line else None

    def turnover(self, replica: ReplicaId, left: Left | None, capacity_tokens: int) -> float:
        """How often the replica's whole cache could have been filled since; None: since nobody knows when, so ever."""
        before_tokens = 0 if left is None else left.inflow_tokens
        return (self._inflow_tokens.get(replica, 0) - before_tokens) / max(1, capacity_tokens)

    def _dispatched(self, view: View, fact: TurnDispatched) -> None:
        failed = self._running.pop(fact.turn, None)
        if failed is not None and failed.replica in self._inflow_tokens:
            self._add(failed.replica, -failed.tokens)  # it was sent there before, and nothing came of it
        replica = view.replicas[fact.replica]
        left = self.left(fact.session, replica.id, view.turns[fact.turn].line)
        back = None
        new_tokens = fact.prompt_tokens
        if left is not None:
            turnover = self.turnover(replica.id, left, replica.capacity_tokens)
            seen = view.sessions[fact.session].evidence.get(replica.id)
            told = seen is not None and seen.source is EvidenceSource.KV_EVENTS
            back = Return(replica.id, left, fact.at, turnover, seen.tokens if seen and told else None)
            new_tokens = max(0, fact.prompt_tokens - left.tokens)
        self._running[fact.turn] = _Booked(replica.id, new_tokens, back)
        self._add(replica.id, new_tokens)

    def _settled(self, view: View, fact: TurnSettled) -> tuple[Return, int] | None:
        booked = self._running.pop(fact.turn, None) or _Booked(fact.replica, 0, None)
        back, cached_tokens = booked.back, fact.cached_tokens
        found = min(fact.prompt_tokens, cached_tokens or 0)
        if fact.finished and cached_tokens is not None:
            self._add(fact.replica, fact.prompt_tokens - found - booked.tokens)  # what it really computed
        elif not fact.finished and not fact.output_tokens:
            self._add(fact.replica, -booked.tokens)  # refused, or gone before it had begun to answer
        self._add(fact.replica, fact.output_tokens)
        session = view.sessions.get(fact.session)
        if session is not None:
            self._remember(session, fact.replica, fact.at)
        if back is None or cached_tokens is None or not fact.finished or not back.left.tokens:
            return None
        if fact.prompt_tokens < SHRUNK_SHARE * back.left.tokens:
            return None  # a history that was cut: what it did not ask for was not looked for
        return back, cached_tokens

    def _remember(self, session: Session, replica: ReplicaId, at: float) -> None:
        """Note what is known of the session's prefix if it was learned at this moment; else it is as old as it was."""
        evidence = session.evidence.get(replica)
        if evidence is not None and evidence.at == at:
            left = Left(evidence.tokens, at, self._inflow_tokens.get(replica, 0), session.line)
            self._left.setdefault(session.id, {})[replica] = left

    def _add(self, replica: ReplicaId, tokens: int) -> None:
        self._inflow_tokens[replica] = self._inflow_tokens.get(replica, 0) + tokens


class MeasuredSurvival:
    """The curves of all replicas, learned from every return; and how well they, and the half-life, told what was found."""

    def __init__(self, half_life_seconds: float = HALF_LIFE_SECONDS) -> None:
        self.curves: dict[ReplicaId, SurvivalCurve] = {}
        self._calibration: CreditCalibration | None = None
        self._half_life_seconds = half_life_seconds
        self._inflow = CacheInflow()
        self._capacities: dict[ReplicaId, int] = {}

    def observe(self, view: View, fact: Fact) -> None:
        """Learn from what happened. A removed replica is forgotten, again when its last turns end."""
        if isinstance(fact, TurnDispatched):
            self._capacities[fact.replica] = view.replicas[fact.replica].capacity_tokens
        known = self._inflow.observe(view, fact)
        if isinstance(fact, ReplicaChanged | TurnSettled) and view.replicas[fact.replica].removed:
            self._forget(fact.replica)
        elif known is not None:
            back, cached_tokens = known
            curve = self._curve(back.replica)
            found = min(1.0, cached_tokens / back.left.tokens)
            if self._calibration is not None:
                self._calibration.returned(back.left.tokens, self._expected(back, curve), found)
            curve.learn(back.turnover, found)

    def judged(self) -> CreditCalibration:
        """What was expected of returns against what was found, since the first time that this was asked for: where nobody
        reads it nobody pays for it.
        """
        if self._calibration is None:
            self._calibration = CreditCalibration()
        return self._calibration

    def share(self, session: Session, replica: ReplicaId) -> float:
        """What is expected to be left now of the prefix that a session left behind, from 0 to 1."""
        left = self._inflow.left(session.id, replica, session.line)
        capacity_tokens = self._capacities.get(replica, 1)
        return self._curve(replica).share(self._inflow.turnover(replica, left, capacity_tokens))

    def shown(self) -> dict[str, object]:
        """Curves and calibration as JSON-ready data."""
        curves = {
            replica: {
                "returns": curve.returns,
                "share_by_turnover": {f"{turnover:g}": round(share, 4) for turnover, share in curve.points()},
            }
            for replica, curve in self.curves.items()
        }
        return {"calibration": self.judged().shown(), "survival": curves}

    def _forget(self, replica: ReplicaId) -> None:
        self.curves.pop(replica, None)
        self._capacities.pop(replica, None)
        self._inflow.forget(replica)

    def _expected(self, back: Return, curve: SurvivalCurve) -> dict[str, float]:
        """The share that each way to expect would have told of a return."""
        expected = {
            "half-life": 2.0 ** (-max(0.0, back.at - back.left.at) / self._half_life_seconds),
            "survival": curve.share(back.turnover),
        }
        if back.told_tokens is not None:
            expected["kv-events"] = min(1.0, back.told_tokens / back.left.tokens)
        return expected

    def _curve(self, replica: ReplicaId) -> SurvivalCurve:
        curve = self.curves.get(replica)
        if curve is None:
            curve = self.curves[replica] = SurvivalCurve()
        return curve


class SurvivalCredit:
    """Credit by measured survival: the tokens left behind, times the share that is expected to be there still.

    What KV events tell needs no expectation.
    """

    def __init__(self, survival: MeasuredSurvival) -> None:
        self._survival = survival

    def tokens(self, session: Session, at: float) -> dict[ReplicaId, int]:  # noqa: ARG002
        worth: dict[ReplicaId, int] = {}
        for replica, evidence in session.evidence.items():
            tokens = evidence.tokens
            if evidence.source is not EvidenceSource.KV_EVENTS:
                tokens = round(tokens * self._survival.share(session, replica))
            if tokens:
                worth[replica] = tokens
        return worth


def survival_of(policy: Policy) -> MeasuredSurvival | None:
    """What a policy measures of caches, the user's own policies included; None where it measures nothing."""
    found = getattr(policy, "survival", None)
    return found if isinstance(found, MeasuredSurvival) else None
