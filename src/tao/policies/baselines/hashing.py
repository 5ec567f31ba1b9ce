"""Routers that pin a session by hashing its id: a ring of virtual nodes, and rendezvous weights.

The hash is BLAKE2b, so that a placement does not depend on the interpreter's hash seed. What a hash cannot know is load.
"""

from bisect import bisect_left
from hashlib import blake2b

from tao.core.facts import Fact
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Session, Turn

RINGS_MAX = 64
"""Rings are kept by their members: those of other models are others."""
_Ring = tuple[list[int], list[ReplicaId]]


def hash64(text: str) -> int:
    """64 bits of the text, the same everywhere and always."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def rendezvous_weight(session: SessionId, replica: ReplicaId) -> int:
    """Highest random weight: the replica with the largest one wins, and only its loss moves the session."""
    return hash64(f"{replica}|{session}")


class ConsistentHash:
    """A ring with `virtual_nodes` points per replica; a session goes to the first point at or after its own hash."""

    def __init__(self, virtual_nodes: int = 160) -> None:
        self._virtual_nodes = virtual_nodes
        self._rings: dict[tuple[ReplicaId, ...], _Ring] = {}

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:  # noqa: ARG002
        members = tuple(replica.id for replica in view.eligible_replicas(session))
        ring = self._rings.get(members)
        if ring is None:
            if len(self._rings) >= RINGS_MAX:
                self._rings.clear()
            ring = self._rings[members] = self._build(members)
        points, owners = ring
        return owners[bisect_left(points, hash64(session.id)) % len(owners)]

    def observe(self, view: View, fact: Fact) -> None:
        pass

    def _build(self, members: tuple[ReplicaId, ...]) -> _Ring:
        ring = sorted(
            (hash64(f"{member}#{number}"), member)
            for member in members
            for number in range(self._virtual_nodes)
        )
        return [point for point, _ in ring], [owner for _, owner in ring]
