"""An example of a policy of your own: each tenant has a home replica, so that its sessions find its system prompt there.

PYTHONPATH=examples tao serve --policy tenant_homes:TenantHomes --replica http://127.0.0.1:8000
"""

from hashlib import blake2b

from tao.core.facts import Fact
from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.core.session import Session, Turn
from tao.policies.baselines import PerTurnPolicy


class TenantRouter:
    """A turn goes home, unless home has `spill_turns` more in flight than the least loaded replica."""

    def __init__(self, spill_turns: int) -> None:
        self._spill_turns = spill_turns

    def choose(self, view: View, session: Session, turn: Turn, at: float) -> ReplicaId:  # noqa: ARG002
        up = view.eligible_replicas(session)
        home = max(up, key=lambda replica: _weight(session.tenant, replica.id))
        calmest = min(up, key=lambda replica: replica.turns_in_flight)
        spills = home.turns_in_flight - calmest.turns_in_flight > self._spill_turns
        return calmest.id if spills else home.id

    def observe(self, view: View, fact: Fact) -> None:
        """This router looks at the present only."""


class TenantHomes(PerTurnPolicy):
    """The router in the frame that makes a policy of it."""

    def __init__(self) -> None:
        super().__init__("tenant-homes", TenantRouter(spill_turns=8))


def _weight(tenant: str, replica: ReplicaId) -> bytes:
    return blake2b(f"{replica}|{tenant}".encode(), digest_size=8).digest()
