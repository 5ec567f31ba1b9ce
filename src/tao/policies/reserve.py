"""What an admission costs beyond the session's context: room for what its next turn writes (method, section 5).

The paper's figure is made for replicas of hundreds of thousands of tokens. On a small one it would keep a seventh of the
memory empty for each session, so there it is a share of the capacity. It must not know sessions.
"""

from dataclasses import dataclass
from typing import Protocol

from tao.core.ports import View

RESERVE_TOKENS = 512


class AdmissionReserve(Protocol):
    """Says how many tokens are booked for a session beside its context."""

    def tokens(self, view: View) -> int:
        """The same for every session, as the replicas are now."""


class FixedReserve:
    """The paper's rule: 512 tokens."""

    def tokens(self, view: View) -> int:  # noqa: ARG002
        return RESERVE_TOKENS


@dataclass(frozen=True, slots=True)
class CappedReserve:
    """512 tokens, but no more than a share of the smallest replica's capacity."""

    share_max: float = 1.0 / 64.0

    def tokens(self, view: View) -> int:
        capacities = [replica.capacity_tokens for replica in view.up_replicas()]
        least_tokens = min((tokens for tokens in capacities if tokens > 0), default=0)
        return min(RESERVE_TOKENS, round(self.share_max * least_tokens)) if least_tokens else RESERVE_TOKENS
