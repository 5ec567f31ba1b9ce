"""The replicas of a simulated run: one engine model each, and when each has something to say.

It keeps time over several engines; it knows nothing of turns, sessions or the core.
"""

from collections.abc import Iterable, Sequence
from math import inf

from tao.core.ids import ReplicaId
from tao.enginemodel import EngineEvent, EngineModel, Request


class Fleet:
    """Engine models by replica id, in a fixed order."""

    def __init__(self, engines: Iterable[tuple[ReplicaId, EngineModel]]) -> None:
        named = list(engines)
        self.replicas: Sequence[ReplicaId] = [replica for replica, _ in named]
        self._engines = [engine for _, engine in named]
        self._index = {replica: index for index, replica in enumerate(self.replicas)}
        self._due = [inf] * len(named)
        self.next_at = inf
        """When the next engine event is due; infinity when all are idle."""

    def submit(self, at: float, replica: ReplicaId, request: Request) -> None:
        """Queue a request; `RequestRefusedError` where the engine can never run it."""
        index = self._index[replica]
        self._engines[index].submit(at, request)
        self._refresh(index)

    def abort(self, at: float, replica: ReplicaId, request_id: str) -> None:
        """Drop a request."""
        index = self._index[replica]
        self._engines[index].abort(at, request_id)
        self._refresh(index)

    def restart(self, at: float, replica: ReplicaId) -> tuple[str, ...]:
        """The replica dies and is empty; returns the ids of the requests that are lost."""
        index = self._index[replica]
        lost = self._engines[index].restart(at)
        self._refresh(index)
        return lost

    def capacity_tokens(self, replica: ReplicaId) -> int:
        """KV capacity of the replica."""
        engine = self._engines[self._index[replica]]
        return engine.total_blocks * engine.profile.block_tokens

    def slots(self, replica: ReplicaId) -> int:
        """How many requests the replica runs at once."""
        return self._engines[self._index[replica]].profile.max_running

    def request_tokens_max(self, replica: ReplicaId) -> int:
        """Most tokens, prompt and output, that the replica takes in one request."""
        limit = self._engines[self._index[replica]].profile.max_model_tokens
        return min(limit, self.capacity_tokens(replica))

    def reloaded_tokens(self) -> int:
        """Prompt tokens that came from host memory, on all replicas, since each was started last."""
        return sum(engine.stats().reloaded_tokens for engine in self._engines)

    def is_idle(self) -> bool:
        """Whether no engine has a request."""
        return self.next_at == inf

    def advance(self) -> list[EngineEvent]:
        """The events of the replica that is due first, up to that moment."""
        at = self.next_at
        index = self._due.index(at)
        events = self._engines[index].advance(at)
        self._refresh(index)
        return events

    def _refresh(self, index: int) -> None:
        at, due = self._engines[index].next_event_at(), self._due
        due[index] = inf if at is None else at
        self.next_at = min(due)
