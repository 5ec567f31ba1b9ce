"""Decayed KV-cache credit (method, section 3; paper eq. 4): what a session's prefix on a replica is still worth.

Credit touches only the value of a placement; what the engine evicts, and when, is the engine's affair.
"""

from dataclasses import dataclass
from typing import Protocol

from tao.core.ids import ReplicaId
from tao.core.session import Session

HALF_LIFE_SECONDS = 10.0
"""`h` of eq. 4."""


class Credit(Protocol):
    """Values the evidence of a session's prefix on each replica."""

    def tokens(self, session: Session, at: float) -> dict[ReplicaId, int]:
        """Credit in tokens by replica; replicas without any are left out."""


@dataclass(frozen=True, slots=True)
class HalfLifeCredit:
    """`k = round(k0 * 2 ** (-age / half_life_seconds))`; no evidence on a replica, no credit (eq. 4).

    Age is the time since the observation, so what KV events tell at this very moment has none.
    """

    half_life_seconds: float = HALF_LIFE_SECONDS

    def tokens(self, session: Session, at: float) -> dict[ReplicaId, int]:
        worth: dict[ReplicaId, int] = {}
        for replica, evidence in session.evidence.items():
            age_seconds = evidence.age_seconds(at)
            tokens = round(evidence.tokens * 2.0 ** (-age_seconds / self.half_life_seconds))
            if tokens:
                worth[replica] = tokens
        return worth


@dataclass(frozen=True, slots=True)
class NoCredit:
    """The ablation: every placement is worth the same, wherever the prefix lives."""

    def tokens(self, session: Session, at: float) -> dict[ReplicaId, int]:  # noqa: ARG002
        return {}
