"""What a policy is told: facts that the core derived from events, so that no policy needs to know the phases.

A fact is told at the moment it holds, before the policy is asked to place or decide anything because of it.
"""

from tao.core.events import ToolCall, TurnKind
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.values import value


@value
class TurnHeld:
    """A turn arrived and waits; its session is in the waiting pool."""

    at: float
    session: SessionId
    turn: TurnId


@value
class TurnDispatched:
    """A turn was sent to a replica."""

    at: float
    session: SessionId
    turn: TurnId
    replica: ReplicaId
    prompt_tokens: int


@value
class TurnSettled:
    """A dispatched turn ended. `cached_tokens` is None where the engine did not tell or the turn failed."""

    at: float
    session: SessionId
    turn: TurnId
    replica: ReplicaId
    kind: TurnKind
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    finished: bool


@value
class ToolStarted:
    """The last turn in flight of a session ended: its tools run (none: a human is asked)."""

    at: float
    session: SessionId
    tenant: str
    tools: tuple[ToolCall, ...]


@value
class ToolEnded:
    """The session is back, or its tool was seen to end. Told once for each `ToolStarted`, unless the session closed.

    `tools` may be more than were told at the start: those that the client named since.
    """

    at: float
    session: SessionId
    tenant: str
    tools: tuple[ToolCall, ...]
    duration_seconds: float


@value
class ToolsNamed:
    """The client named what the session waits for: `tools` in place of those told when the phase began."""

    at: float
    session: SessionId
    tenant: str
    tools: tuple[ToolCall, ...]


@value
class ToolMeasured:
    """One of several parallel tools took so long by itself, as the client measured it. `tool` has no command head where
    calls of one name had different ones. A tool that ran alone is told by `ToolEnded` only.
    """

    at: float
    session: SessionId
    tenant: str
    tool: ToolCall
    duration_seconds: float


@value
class ChildStarted:
    """A sub-agent works while the tools of `session` run: they end when it does (`ToolEnded`), or later."""

    at: float
    session: SessionId
    child: SessionId


@value
class SessionClosed:
    """The session is forgotten. `told`: its client said that it is over; else it was given up on."""

    at: float
    session: SessionId
    tenant: str = ""
    told: bool = False


@value
class SessionInterrupted:
    """The session lost its admission and is in the waiting pool."""

    at: float
    session: SessionId
    replica: ReplicaId


@value
class SessionLapsed:
    """The session was given up on: it holds nothing and nothing waits for it, but it may come back (then `ToolEnded`)."""

    at: float
    session: SessionId
    tenant: str


@value
class ReplicaChanged:
    """A replica joined, left, drains, or has another capacity."""

    at: float
    replica: ReplicaId


@value
class CacheVoided:
    """Nothing is known of the cache of this replica any more."""

    at: float
    replica: ReplicaId


@value
class CacheUnwatched:
    """The engine's KV events tell no more what the replica's cache holds of these sessions: from now on what was told last
    ages. Their evidence says so already.
    """

    at: float
    replica: ReplicaId
    sessions: tuple[SessionId, ...]


Fact = (
    TurnHeld
    | TurnDispatched
    | TurnSettled
    | ToolStarted
    | ToolEnded
    | ToolsNamed
    | ToolMeasured
    | ChildStarted
    | SessionClosed
    | SessionInterrupted
    | SessionLapsed
    | ReplicaChanged
    | CacheVoided
    | CacheUnwatched
)
