"""What silence says of a session: whether it is away, or over.

Which of the two is more likely is learned for each tenant: from how its sessions ended, with a word or by just not coming
back, and from how many absences were ends. It matters most for one that asked for no tool, which waits for a human or is
over. Only sessions that came back at least once count: a request without a session is ended by whoever serves it, which
says nothing of clients. It must not know tools.
"""

from collections import OrderedDict

from tao.core.facts import Fact, SessionClosed, SessionLapsed, ToolEnded, ToolsNamed, ToolStarted
from tao.core.ids import SessionId
from tao.policies.returns import Forecast

TENANTS_MAX = 1024
HUMAN_SECONDS_MAX = 5.0
"""A human is expected no later than the method's default: those who come take minutes, and nobody knows how many."""
TOLD_LEASE_SECONDS = 30.0
SILENT_LEASE_SECONDS = 2.0
SILENCE_SECONDS_MIN = 1.0
"""No silence that is shorter says anything."""
SURE_ODDS = 9.0
"""An absence must be nine times as likely an end as not: who is given up too early waits for a place again."""
RETURNS_MIN = 8
"""Of a tenant, before silence is weighed at all: forecasts of tools that nobody has seen yet say nothing either."""
ABSENCES_MAX = 1024.0
"""So many absences are remembered of a tenant; older ones fade."""


class _Absences:
    """How many absences of one kind were an end, in silence, and how many ended with a return.

    `prior_over` and `prior_returned` count as if they had been seen, and never fade.
    """

    __slots__ = ("_over", "_prior_over", "_prior_returned", "_returned")

    def __init__(self, prior_over: float, prior_returned: float) -> None:
        self._prior_over = prior_over
        self._prior_returned = prior_returned
        self._over = 0.0
        self._returned = 0.0

    def add_over(self, count: float = 1.0) -> None:
        """One more was an end; -1: one that was taken for an end was none."""
        self._over = max(0.0, self._over + count)
        self._fade()

    def add_returned(self) -> None:
        self._returned += 1.0
        self._fade()

    def _fade(self) -> None:
        if self._over + self._returned > ABSENCES_MAX:
            self._over, self._returned = self._over / 2.0, self._returned / 2.0

    @property
    def odds(self) -> float:
        """Of an absence to be the end against a return."""
        return (self._over + self._prior_over) / (self._returned + self._prior_returned)


class _Tenant:
    """`more_told`: told ends less silent ones. Absences with tools are seldom an end, those without often."""

    __slots__ = ("more_told", "returns", "with_tools", "without_tools")

    def __init__(self) -> None:
        self.more_told = 0
        self.returns = 0
        self.with_tools = _Absences(1.0, 19.0)
        self.without_tools = _Absences(1.0, 1.0)

    def absences(self, *, with_tools: bool) -> _Absences:
        return self.with_tools if with_tools else self.without_tools


class Farewells:
    """Counts told and silent ends, and absences that were ends, by tenant; those heard of most recently are kept.

    Where clients say when a session is over, one that did not say so is believed in for `TOLD_LEASE_SECONDS` beyond its
    expected return; else for `SILENT_LEASE_SECONDS`, and not when it is all but certain that it is over.
    """

    def __init__(self) -> None:
        self._came_back: set[SessionId] = set()
        self._away: dict[SessionId, bool] = {}  # whether tools run
        self._given_up: dict[SessionId, bool] = {}  # counted as over
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    def observe(self, fact: Fact) -> None:
        """Learn from returns and ends."""
        match fact:
            case ToolStarted(session=session, tools=tools):
                self._away[session] = bool(tools)
            case ToolsNamed(session=session, tools=tools) if session in self._away:
                self._away[session] = bool(tools)
            case SessionLapsed(session=session, tenant=tenant) if session in self._away:
                self._given_up[session] = with_tools = self._away.pop(session)
                self._tenant(tenant).absences(with_tools=with_tools).add_over()
            case ToolEnded(session=session, tenant=tenant, tools=tools):
                self._came_back.add(session)
                self._away.pop(session, None)
                known = self._tenant(tenant)
                known.returns += 1
                known.absences(with_tools=bool(tools)).add_returned()
                self._not_over(session, known)
            case SessionClosed(session=session, tenant=tenant, told=told):
                self._closed(session, tenant, told=told)

    def _closed(self, session: SessionId, tenant: str, *, told: bool) -> None:
        with_tools = self._away.pop(session, None)
        if told and session in self._given_up:
            self._not_over(session, self._tenant(tenant))
        self._given_up.pop(session, None)
        if session in self._came_back:
            self._came_back.discard(session)
            known = self._tenant(tenant)
            known.more_told += 1 if told else -1
            if not told and with_tools is not None:
                known.absences(with_tools=with_tools).add_over()

    def _not_over(self, session: SessionId, known: _Tenant) -> None:
        """It was given up on, and was no silent end."""
        with_tools = self._given_up.pop(session, None)
        if with_tools is not None:
            known.absences(with_tools=with_tools).add_over(-1.0)

    def are_told(self, tenant: str) -> bool:
        """Whether sessions of this tenant mostly say when they are over, so that silence says that one is not."""
        known = self._tenants.get(tenant)
        return known is not None and known.more_told > 0

    def lease_seconds(self, tenant: str) -> float:
        """How long beyond its expected return a session of this tenant that asked for no tool is believed in."""
        return TOLD_LEASE_SECONDS if self.are_told(tenant) else SILENT_LEASE_SECONDS

    def over(self, tenant: str, elapsed_seconds: float, expected_seconds: float) -> bool:
        """Whether a session that asked for no tool is taken to be over."""
        return elapsed_seconds - min(expected_seconds, HUMAN_SECONDS_MAX) > self.lease_seconds(tenant)

    def surely_over(
        self, tenant: str, *, has_tools: bool, elapsed_seconds: float, forecast: Forecast
    ) -> bool:
        """Whether a silent session is over with a chance of nine in ten (Bayes): absences are ends nine times as often as
        they end with a return after so long. Never where the tenant's clients say when a session is over, nor where
        little is known of them.
        """
        known = self._tenants.get(tenant)
        if known is None or known.returns < RETURNS_MIN or known.more_told > 0:
            return False
        if elapsed_seconds < SILENCE_SECONDS_MIN:
            return False
        odds = known.absences(with_tools=has_tools).odds
        return forecast.survival(elapsed_seconds) * SURE_ODDS < odds

    def _tenant(self, name: str) -> _Tenant:
        """Of the tenant; the one heard of least recently is forgotten for a new one."""
        known = self._tenants.get(name)
        if known is None:
            known = self._tenants[name] = _Tenant()
            if len(self._tenants) > TENANTS_MAX:
                self._tenants.popitem(last=False)
        else:
            self._tenants.move_to_end(name)
        return known
