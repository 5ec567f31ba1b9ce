"""What a router's prefix tree would say, told from sessions: how much of a prompt was sent to which replica before.

Routers keep a radix tree over request text or block hashes. The core knows no text, but it knows what such a tree is
made of here: the main line of each session, whose prompts extend one another, and under it the prompt that the sessions
of a tenant share. The length of the latter is learned from the cached tokens of first turns. Lines of closed sessions
are dropped, since nothing will match them again; so the table is as large as the table of sessions.
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from tao.core.facts import CacheVoided, Fact, SessionClosed, TurnDispatched, TurnSettled
from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import View
from tao.core.session import Session

TENANTS_MAX = 4096
SHARED_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Match:
    """`tokens` of the prompt were sent to a replica before, most recently at the time `at`."""

    tokens: int
    at: float


@dataclass(slots=True)
class _Line:
    """One session's main line: what was sent where. `number` tells a line that was started afresh from the one before."""

    number: int
    sent: dict[ReplicaId, Match] = field(default_factory=dict)


@dataclass(slots=True)
class _Tenant:
    """Cached tokens of recent first turns, and when a session of the tenant was last sent to a replica."""

    samples: deque[int] = field(default_factory=lambda: deque(maxlen=SHARED_SAMPLES))
    sent_at: dict[ReplicaId, float] = field(default_factory=dict)

    @property
    def shared_tokens(self) -> int:
        """The shared prompt is what most first turns found: the median, so that a chance hit or a cold cache is no rule."""
        return sorted(self.samples)[len(self.samples) // 2] if self.samples else 0


class PrefixLines:
    """Tell it every fact; ask for `matches` before a turn is sent. `ttl_seconds`: what is older counts as evicted."""

    def __init__(self, ttl_seconds: float = inf) -> None:
        self._ttl_seconds = ttl_seconds
        self._lines: dict[SessionId, _Line] = {}
        self._tenants: dict[str, _Tenant] = {}

    def matches(self, session: Session, prompt_tokens: int, at: float) -> dict[ReplicaId, Match]:
        """The longest known prefix of the prompt on each replica that has any, in tokens (at most the prompt)."""
        found: dict[ReplicaId, Match] = {}
        tenant = self._tenants.get(session.tenant)
        if tenant is not None and tenant.shared_tokens and session.side_of is None:
            shared_tokens = min(tenant.shared_tokens, prompt_tokens)
            found = {replica: Match(shared_tokens, sent_at) for replica, sent_at in tenant.sent_at.items()}
        line = self._lines.get(session.id)
        if line is not None and line.number == session.line:
            for replica, sent in line.sent.items():
                if replica not in found or sent.tokens >= found[replica].tokens:
                    found[replica] = Match(min(sent.tokens, prompt_tokens), sent.at)
        return {replica: match for replica, match in found.items() if at - match.at <= self._ttl_seconds}

    def observe(self, view: View, fact: Fact) -> None:
        match fact:
            case TurnDispatched():
                self._sent(view, fact)
            case TurnSettled():
                self._settled(view, fact)
            case SessionClosed(session=session):
                self._lines.pop(session, None)
            case CacheVoided(replica=replica):
                for known in (*self._lines.values(),):
                    known.sent.pop(replica, None)
                for tenant in self._tenants.values():
                    tenant.sent_at.pop(replica, None)

    def _sent(self, view: View, fact: TurnDispatched) -> None:
        session, turn = view.sessions[fact.session], view.turns[fact.turn]
        if session.side_of is not None or turn.line != session.line:
            return
        line = self._lines.get(session.id)
        if line is None or line.number != session.line:
            line = self._lines[session.id] = _Line(session.line)
        line.sent[fact.replica] = Match(fact.prompt_tokens, fact.at)
        tenant = self._tenants.pop(session.tenant, None) or _Tenant()
        if len(self._tenants) >= TENANTS_MAX:
            del self._tenants[next(iter(self._tenants))]  # the tenant that was silent longest
        self._tenants[session.tenant] = tenant
        tenant.sent_at[fact.replica] = fact.at

    def _settled(self, view: View, fact: TurnSettled) -> None:
        session = view.sessions[fact.session]
        first = session.turns_finished == 1 and session.side_of is None
        if fact.finished and first and fact.cached_tokens is not None and session.tenant in self._tenants:
            self._tenants[session.tenant].samples.append(fact.cached_tokens)
