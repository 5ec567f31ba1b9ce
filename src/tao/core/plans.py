"""The frozen snapshot that a joint decision is computed from. Sessions and replicas by id, everything else integers.

It knows nothing of the solver: `tao.policies.problem` turns it into a `tao.planning.Problem`.
"""

from collections.abc import Mapping

from tao.core.ids import ReplicaId, SessionId
from tao.values import value


@value
class Candidate:
    """One session of the waiting pool with its value triple (method, eq. 2) and its cost.

    `epoch` is the signature: a session whose epoch has moved on since is another candidate now.
    `credit_tokens` lists only replicas with credit; `eligible` None means every replica of the request. `rank`: among
    candidates of equal worth the lower one is preferred; then the id decides.
    """

    session: SessionId
    epoch: int
    weight_tokens: int
    footprint_tokens: int
    ready: int
    credit_tokens: Mapping[ReplicaId, int]
    waited_seconds: float
    home: ReplicaId | None = None
    eligible: tuple[ReplicaId, ...] | None = None
    rank: int = 0


@value
class PlanRequest:
    """A joint decision to compute. `free_tokens`: capacity offered per replica, in a fixed order.

    `wait_seconds_max`: candidates that have waited at least so long come before everything else, oldest first; None:
    waiting does not count. `free_slots`: how many more sessions a replica takes; those that are not in it take any number.
    """

    solver: str
    free_tokens: Mapping[ReplicaId, int]
    candidates: tuple[Candidate, ...]
    wait_seconds_max: float | None = None
    free_slots: Mapping[ReplicaId, int] | None = None
