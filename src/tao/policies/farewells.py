"""What silence says of a session: whether it is away, or over.

Which of the two is more likely is learned for each tenant from how its sessions ended: with a word, or by just not coming
back. It matters most for one that asked for no tool, which waits for a human or is over. Only sessions that came back at
least once count: a request without a session is ended by whoever serves it, which says nothing of clients. It must not
know tools.
"""

from collections import OrderedDict

from tao.core.facts import Fact, SessionClosed, ToolEnded
from tao.core.ids import SessionId

TENANTS_MAX = 1024
HUMAN_SECONDS_MAX = 5.0
"""A human is expected no later than the method's default: those who come take minutes, and nobody knows how many."""
TOLD_LEASE_SECONDS = 30.0
SILENT_LEASE_SECONDS = 2.0


class Farewells:
    """Counts told and silent ends by tenant; of the tenants, those heard of most recently are kept.

    Where clients say when a session is over, one that did not say so is believed in for `TOLD_LEASE_SECONDS` beyond its
    expected return; else for `SILENT_LEASE_SECONDS`.
    """

    def __init__(self) -> None:
        self._came_back: set[SessionId] = set()
        self._more_told: OrderedDict[str, int] = OrderedDict()

    def observe(self, fact: Fact) -> None:
        """Learn from returns and ends."""
        match fact:
            case ToolEnded(session=session):
                self._came_back.add(session)
            case SessionClosed(session=session, tenant=tenant, told=told) if session in self._came_back:
                self._came_back.discard(session)
                self._more_told[tenant] = self._more_told.get(tenant, 0) + (1 if told else -1)
                self._more_told.move_to_end(tenant)
                if len(self._more_told) > TENANTS_MAX:
                    self._more_told.popitem(last=False)

    def are_told(self, tenant: str) -> bool:
        """Whether sessions of this tenant mostly say when they are over, so that silence says that one is not."""
        return self._more_told.get(tenant, 0) > 0

    def lease_seconds(self, tenant: str) -> float:
        """How long beyond its expected return a session of this tenant that asked for no tool is believed in."""
        return TOLD_LEASE_SECONDS if self.are_told(tenant) else SILENT_LEASE_SECONDS

    def over(self, tenant: str, elapsed_seconds: float, expected_seconds: float) -> bool:
        """Whether a session that asked for no tool is taken to be over."""
        return elapsed_seconds - min(expected_seconds, HUMAN_SECONDS_MAX) > self.lease_seconds(tenant)
