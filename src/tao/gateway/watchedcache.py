"""One replica whose cache is watched: its streams of KV events, what they hold of a session, and how they are shown.

It must not know when anything is told to the core.
"""

import asyncio
from dataclasses import asdict, dataclass, field
from math import inf

from tao.core.ids import ReplicaId, SessionId
from tao.core.session import EvidenceSource, Session
from tao.engines import KvSubscriber
from tao.engines.kv_index import BlockIndex
from tao.gateway.unnamed import Unnamed

NOT_ASKED = "not asked yet"
"""Why a replica that has just come is not watched: a state of the first moment, no problem."""


@dataclass(slots=True)
class Watched:
    """One replica and its streams, in the order of ranks. `since`: when it came (clock of the events): what happened to its
    cache before concerns nobody here. `why`: what keeps it from being watched.
    """

    replica: ReplicaId
    since: float
    why: str | None = NOT_ASKED
    streams: list[KvSubscriber] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    dirty: dict[SessionId, None] = field(default_factory=dict)
    unnamed: Unnamed = field(default_factory=Unnamed)
    told: str | None = None  # the last problem that was logged

    @property
    def live(self) -> bool:
        """Whether every rank has spoken and none is silent."""
        return bool(self.streams) and all(stream.follower.live for stream in self.streams)

    @property
    def problem(self) -> str | None:
        """What is wrong at present, in words."""
        followers = [stream.follower for stream in self.streams]
        return self.why or next((f.problem for f in followers if f.problem is not None), None)

    @property
    def indexes(self) -> list[BlockIndex]:
        """What is known of the blocks of each rank."""
        return [stream.follower.index for stream in self.streams]

    @property
    def echoes(self) -> bool:
        """Whether the engine says whose blocks it stores."""
        return any(index.echoes for index in self.indexes)

    @property
    def heard_at(self) -> float | None:
        """Until when every stream has been heard (the clock of their events); None where one never was."""
        heard = [stream.follower.last_at for stream in self.streams]
        return min((at for at in heard if at is not None), default=None) if None not in heard else None

    @property
    def voided_at(self) -> float:
        """Until when what any stream told before is void (the clock of their events); -inf: it is not."""
        return max((stream.follower.voided_at for stream in self.streams), default=-inf)

    def forget(self, name: str) -> None:
        """Forget a session's blocks on all ranks."""
        for index in self.indexes:
            index.forget(name)

    def reset(self) -> None:
        """Forget what its streams have told."""
        for stream in self.streams:
            stream.follower.reset()

    def tokens(self, name: str) -> int | None:
        """What the replica holds of a session, on the rank that holds most; None where no stream knows its blocks."""
        known = [index.tokens(name) for index in self.indexes]
        return max((tokens for tokens in known if tokens is not None), default=None)

    def news(self, lost: str | None) -> str | None:
        """What is wrong by now, if it was not told yet. `lost`: why what was told before is a memory."""
        said = lost or self.problem
        is_new = said is not None and said not in (self.told, NOT_ASKED)
        if self.live or said is not None:
            self.told = said
        return said if is_new else None


def is_told(session: Session, replica: ReplicaId) -> bool:
    """Whether KV events have told what the replica holds of the session."""
    known = session.evidence.get(replica)
    return known is not None and known.source is EvidenceSource.KV_EVENTS


def counted(watched: Watched) -> dict[str, float]:
    """Counts since the start and sizes, by name, summed over its ranks."""
    sums: dict[str, float] = {"live": float(watched.live)}
    for stream in watched.streams:
        follower = stream.follower
        for name, count in (asdict(follower.figures) | {"blocks": follower.index.blocks}).items():
            sums[name] = sums.get(name, 0) + count
    sums["recognised"] = watched.unnamed.recognised
    sums["unrecognised"] = watched.unnamed.unrecognised
    return sums


def described(watched: Watched) -> dict[str, object]:
    """What is known of a replica's streams, as JSON-ready data."""
    return {
        "replica": watched.replica,
        "live": watched.live,
        "problem": watched.problem,
        "echoes": watched.echoes,
        "recognised": watched.unnamed.recognised,
        "unrecognised": watched.unnamed.unrecognised,
        "streams": [_described_stream(stream) for stream in watched.streams],
    }


def _described_stream(stream: KvSubscriber) -> dict[str, object]:
    follower = stream.follower
    return {
        "rank": stream.source.rank,
        "endpoint": stream.source.endpoint,
        "replay_endpoint": stream.source.replay_endpoint,
        "live": follower.live,
        "blocks": follower.index.blocks,
        "block_tokens": follower.index.block_tokens,
        "sessions": follower.index.sessions,
        "last_loss": follower.last_loss,
        **asdict(follower.figures),
        "reconnects": stream.reconnects,
        "skipped": asdict(follower.index.skipped),
        "unknown_kinds": dict(follower.unknown_kinds),
    }
