"""Session records for tests of values: a session that acts, with evidence and tools, and nothing around it."""

from tao.core.events import ToolCall
from tao.core.ids import ReplicaId, SessionId
from tao.core.phases import Acting
from tao.core.session import CacheEvidence, Session


def acting_session(
    name: str = "s",
    *,
    since: float = 0.0,
    tools: tuple[ToolCall, ...] = (ToolCall("bash"),),
    home: str | None = "a",
    footprint_tokens: int = 1_000,
    evidence: dict[str, tuple[int, float]] | None = None,
    finished_at: float | None = None,
    expected_at: float | None = None,
    told_at: float | None = None,
) -> Session:
    """`evidence`: by replica, tokens and the time at which they were seen."""
    phase = Acting(
        tools, since, ReplicaId(home) if home is not None else None, finished_at, expected_at, told_at
    )
    session = Session(
        SessionId(name), "", None, None, phase, opened_at=0.0, footprint_tokens=footprint_tokens
    )
    for replica, (tokens, at) in (evidence or {}).items():
        session.evidence[ReplicaId(replica)] = CacheEvidence(tokens, at)
    return session
