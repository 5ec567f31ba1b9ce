"""The replicas of a simulated run: one engine model each, and when each has something to say.

It knows engines and time, neither sessions nor the core.
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

    def engine(self, replica: ReplicaId) -> EngineModel:
        """The model behind a replica; call `touch` after changing it."""
        return self._engines[self._index[replica]]

    def touch(self, replica: ReplicaId) -> None:
        """The replica's engine was changed from outside: ask it afresh when it is due."""
        self._refresh(self._index[replica])

    @property
    def next_at(self) -> float:
        """When the next engine event is due; infinity when all are idle."""
        return min(self._due)

    def advance(self) -> list[EngineEvent]:
        """The events of the replica that is due first, up to that moment."""
        due = min(self._due)
        index = self._due.index(due)
        events = self._engines[index].advance(due)
        self._refresh(index)
        return events

    def _refresh(self, index: int) -> None:
        due = self._engines[index].next_event_at()
        self._due[index] = inf if due is None else due
