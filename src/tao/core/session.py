"""The mutable records of the core: a session, a turn, a replica. Plain data; who may change what is in `state.py`.

A session keeps one *main line*, the chain of prompts that extend one another. `line` counts how often it was started
afresh, so that a turn of an earlier line that ends late changes nothing of the present one.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from tao.core.commands import Reason
from tao.core.events import PrefixNode, ToolCall, TurnKind, Urgency
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.phases import IN_FLIGHT, Acting, Phase
from tao.values import value


class EvidenceSource(StrEnum):
    """How it is known what a replica's prefix cache holds of a session, strongest first."""

    KV_EVENTS = "kv-events"  # the engine tells each block that it stores and evicts
    CACHED_TOKENS = "cached-tokens"  # a turn ended there, on an engine that reports what its cache served
    OWN_ACCOUNTING = "own-accounting"  # a turn ended there; the share that survives is learned


@value
class CacheEvidence:
    """`tokens` of the session's main line were in the replica's prefix cache at the time `at`.

    What KV events tell is followed block by block: it holds now, whatever `at` says.
    """

    tokens: int
    at: float
    source: EvidenceSource = EvidenceSource.CACHED_TOKENS

    def age_seconds(self, now: float) -> float:
        """Since when nothing was heard of it; 0 while KV events tell of it."""
        return 0.0 if self.source is EvidenceSource.KV_EVENTS else max(0.0, now - self.at)


@value
class Placement:
    """Where a session was put last, and why: what `/explain` tells."""

    at: float
    replica: ReplicaId
    reason: Reason


@dataclass(slots=True)
class Session:
    """One agent's conversation.

    `footprint_tokens`: the context of the main line, prompt and output. `epoch` grows whenever something changes that a
    plan was computed from. `side_of`: set on the one-turn session that carries a side turn.
    """

    id: SessionId
    tenant: str
    parent: SessionId | None
    side_of: SessionId | None
    phase: Phase
    opened_at: float
    model: str = ""  # what its main line asks for; empty: nothing in particular
    epoch: int = 0
    line: int = 0
    footprint_tokens: int = 0
    measured_tokens: int = 0  # the largest context that the engine reported for this line
    growing_tokens: int = 0  # what the main-line turn in flight holds beyond the footprint
    evidence: dict[ReplicaId, CacheEvidence] = field(default_factory=dict)
    placement: Placement | None = None
    tools: tuple[ToolCall, ...] = ()  # asked for by the turns since the session last acted
    turns_finished: int = 0
    interrupts: int = 0
    pinned: ReplicaId | None = None  # the only replica that can serve its next turn
    urgency: Urgency | None = None  # what the client said of its latest main-line turn
    beginning: tuple[PrefixNode, ...] = ()  # how its main line begins, as its latest turn told
    ended: bool = False  # released by the client while a turn was in flight
    children: dict[SessionId, bool] = field(
        default_factory=dict
    )  # sub-agents of this tool phase: still at work?

    @property
    def home(self) -> ReplicaId | None:
        """The replica that holds the session's admission."""
        phase = self.phase
        if isinstance(phase, IN_FLIGHT):
            return phase.replica
        return phase.home if isinstance(phase, Acting) else None

    @property
    def awaits_children(self) -> bool:
        """Whether a sub-agent works for the session's present tools: they cannot be over yet."""
        return any(self.children.values())

    @property
    def live_tokens(self) -> int:
        """Context of the main line including the output of the turn in flight."""
        return self.footprint_tokens + self.growing_tokens

    @property
    def shared_prefix(self) -> tuple[PrefixNode, ...]:
        """How its main line begins, as far as others may begin alike: never more tokens than there are."""
        pieces, left_tokens = self.beginning, self.live_tokens
        for number, piece in enumerate(pieces):
            left_tokens -= piece.tokens
            if left_tokens < 0:
                return pieces[:number]
        return pieces


@dataclass(slots=True)
class Turn:
    """One model request that has not ended. `replica` is None while it is held."""

    id: TurnId
    session: SessionId
    kind: TurnKind
    prompt_tokens: int
    line: int
    arrived_at: float
    model: str = ""
    held_seconds: float = 0.0  # until its first dispatch
    dispatched_at: float | None = None  # the last time
    replica: ReplicaId | None = None
    attempt: int = 0
    output_tokens: int = 0
    first_token_at: float | None = None
    stopping: bool = False
    leads: bool = False  # the main-line turn that the session's admission covers

    @property
    def live_tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt_tokens + self.output_tokens


class ReplicaState(StrEnum):
    """Only an UP replica takes admissions."""

    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(slots=True)
class Replica:
    """One serving-engine instance. `cache_rate`: learned share of prompt tokens that were cached, 0 to 1.

    `models`: what it serves; None: whatever is asked. `slots`: how many sessions it takes at once; None: as many as its
    capacity holds.
    """

    id: ReplicaId
    capacity_tokens: int
    state: ReplicaState = ReplicaState.UP
    turns_in_flight: int = 0
    removed: bool = False
    cache_rate: float = 1.0
    slots: int | None = None
    models: tuple[str, ...] | None = None

    def serves(self, model: str) -> bool:
        """Whether a request for `model` may go there; empty: it names none."""
        return not model or self.models is None or model in self.models
