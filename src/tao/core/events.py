"""What happened, each with its time. Events are the only input of the core.

`at` is seconds on the driver's monotonic clock (model seconds when a driver scales time); it never decreases from one
event to the next. An ill-formed event is refused when it is made (`EventError`), so that no handler meets one.

Every dispatched turn ends in exactly one of `TurnFinished`, `TurnFailed`, `TurnStopped`; the driver owes it. A late or
a duplicate event is no error: the core counts it and does nothing.
"""

from math import isfinite

from tao.core.event_values import EventError, PrefixNode, ToolCall, TurnKind, Urgency, Usage
from tao.core.ids import PlanId, ReplicaId, SessionId, TurnId
from tao.values import value

__all__ = [
    "CacheFlushed", "CacheWatchLost", "CapacityChanged", "ClientLeft", "Event", "EventError", "FirstToken",
    "ModelsChanged", "PlanFailed", "PlanReady", "PrefixNode", "PrefixObserved", "ReplicaDraining", "ReplicaJoined",
    "ReplicaLost", "ReplicaRemoved", "SessionEnded", "ShutdownStarted", "ToolBegan", "ToolCall", "ToolExpected",
    "ToolFinished", "ToolsMeasured", "TurnArrived", "TurnFailed", "TurnFinished", "TurnKind", "TurnProgress",
    "TurnStopped", "Urgency", "Usage", "WakeUp", "WeightsUpdateBegan", "WeightsUpdateEnded",
]  # fmt: skip


@value
class Event:
    """`at`: seconds, monotonic."""

    at: float

    def __post_init__(self) -> None:
        if not isfinite(self.at):
            raise EventError(f"the time of an event must be finite, not {self.at!r}")


# --- turns ------------------------------------------------------------------------------------------------------------


@value
class TurnArrived(Event):
    """A model request. `prompt_tokens` is an estimate; `Usage` corrects it when the turn ends.

    `pinned`: the replica that holds what the request refers to (a stored response); elsewhere it would fail. `model`: what
    the request asks for; empty: any replica will do. `shared_prefix`: how the prompt begins, root first, as far as others
    may begin alike; empty: nothing is known of it.
    """

    turn: TurnId
    session: SessionId
    prompt_tokens: int
    kind: TurnKind = TurnKind.MAIN
    tenant: str = ""
    parent: SessionId | None = None
    pinned: ReplicaId | None = None
    model: str = ""
    urgency: Urgency | None = None
    shared_prefix: tuple[PrefixNode, ...] = ()

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.prompt_tokens < 0:
            raise EventError(f"turn {self.turn}: negative prompt_tokens {self.prompt_tokens}")
        if self.shared_prefix:
            pieces = dict(self.shared_prefix)
            if len(pieces) < len(self.shared_prefix) or min(pieces.values()) < 0:
                raise EventError(
                    f"turn {self.turn}: negative tokens or a key twice in its shared prefix {self.shared_prefix}"
                )


@value
class FirstToken(Event):
    """Prefill is over: the first output token of a turn was seen."""

    turn: TurnId


@value
class TurnProgress(Event):
    """Output tokens of a turn so far. A driver sends it every few dozen tokens, not for each."""

    turn: TurnId
    output_tokens: int

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.output_tokens < 0:
            raise EventError(f"turn {self.turn}: negative output_tokens {self.output_tokens}")


@value
class TurnFinished(Event):
    """The response is complete. `usage` is None where neither the engine nor the stream told."""

    turn: TurnId
    usage: Usage | None = None
    tools: tuple[ToolCall, ...] = ()


@value
class TurnFailed(Event):
    """The engine refused, broke off or could not be reached.

    `retryable`: nothing was sent to the client yet, so the turn may be dispatched again elsewhere; the core then answers
    with `DispatchTurn` or `RefuseTurn`. Otherwise the client has its answer already.
    """

    turn: TurnId
    cause: str
    retryable: bool = False


@value
class ClientLeft(Event):
    """The client hung up. Terminal for a held turn; a dispatched one is asked to stop."""

    turn: TurnId


@value
class TurnStopped(Event):
    """A turn that was asked to stop has stopped: the engine no longer works on it."""

    turn: TurnId


# --- sessions ---------------------------------------------------------------------------------------------------------


@value
class ToolFinished(Event):
    """The tool of a session was seen to end, before its next turn arrived."""

    session: SessionId


@value
class ToolExpected(Event):
    """The tool interface exposed progress or a deadline: the session will be back at `return_at`."""

    session: SessionId
    return_at: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if not isfinite(self.return_at):
            raise EventError(f"session {self.session}: return_at must be finite, not {self.return_at!r}")


@value
class ToolBegan(Event):
    """The client says that this tool runs: one that the response did not name, or one more after the last had ended."""

    session: SessionId
    tool: ToolCall


@value
class ToolsMeasured(Event):
    """The client measured its tools: (name, seconds) of each call since the last response, in no particular order."""

    session: SessionId
    durations: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        for name, seconds in self.durations:
            if not (isfinite(seconds) and seconds >= 0):
                raise EventError(f"tool {name}: its seconds must be finite and >= 0, not {seconds!r}")


@value
class SessionEnded(Event):
    """The client released the session."""

    session: SessionId


# --- replicas ---------------------------------------------------------------------------------------------------------


@value
class ReplicaJoined(Event):
    """A replica is ready to serve: new, or back after `ReplicaLost` (then with an empty cache).

    `models`: what it serves; None: whatever is asked. `slots`: how many sessions it takes at once; None: as many as its
    capacity holds.
    """

    replica: ReplicaId
    capacity_tokens: int
    models: tuple[str, ...] | None = None
    slots: int | None = None

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.capacity_tokens < 0:
            raise EventError(f"replica {self.replica}: negative capacity_tokens {self.capacity_tokens}")
        if self.slots is not None and self.slots < 1:
            raise EventError(f"replica {self.replica}: {self.slots} slots; it needs at least one")


@value
class CapacityChanged(Event):
    """The engine reports another KV capacity than before."""

    replica: ReplicaId
    capacity_tokens: int

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.capacity_tokens < 0:
            raise EventError(f"replica {self.replica}: negative capacity_tokens {self.capacity_tokens}")


@value
class ModelsChanged(Event):
    """The engine serves other models than before; None: whatever is asked."""

    replica: ReplicaId
    models: tuple[str, ...] | None


@value
class ReplicaDraining(Event):
    """No new admissions; running turns finish."""

    replica: ReplicaId


@value
class ReplicaLost(Event):
    """Dead or unreachable: its cache is void. Its running turns end by events of their own."""

    replica: ReplicaId


@value
class ReplicaRemoved(Event):
    """Taken out of the configuration. As `ReplicaLost`, and forgotten once its last turn has ended."""

    replica: ReplicaId


@value
class CacheFlushed(Event):
    """The prefix cache of a replica was emptied: all evidence on it is void."""

    replica: ReplicaId


@value
class PrefixObserved(Event):
    """A watched cache: the replica holds the first `tokens` of the session's main line now, as the engine's KV events tell.

    It holds until the next one of this session and replica, or until the watch is lost.
    """

    replica: ReplicaId
    session: SessionId
    tokens: int

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.tokens < 0:
            raise EventError(f"session {self.session}: negative tokens {self.tokens}")


@value
class CacheWatchLost(Event):
    """The KV events of a replica cannot be followed any more: what they told ages from now on.

    `session`: only what they told of this one; None: of all.
    """

    replica: ReplicaId
    session: SessionId | None = None


# --- weights ----------------------------------------------------------------------------------------------------------


@value
class WeightsUpdateBegan(Event):
    """The engines are getting other weights: nothing is dispatched until that has ended, at the latest at `until`.

    Once more while it lasts: the deadline is now `until`.
    """

    until: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if not isfinite(self.until):
            raise EventError(f"until must be finite, not {self.until!r}")


@value
class WeightsUpdateEnded(Event):
    """The engines have their new weights; what their caches held was computed with the old ones and is void."""


# --- time, plans, shutdown --------------------------------------------------------------------------------------------


@value
class WakeUp(Event):
    """The moment that `Scheduler.next_wakeup()` asked for has come."""


@value
class PlanReady(Event):
    """The answer to `ComputePlan`: (session, replica) pairs in the order in which to apply them.

    `solver` and `status` say where it came from; a driver that had to fall back says so there.
    """

    plan: PlanId
    assignments: tuple[tuple[SessionId, ReplicaId], ...]
    solver: str = ""
    status: str = ""
    elapsed_seconds: float = 0.0


@value
class PlanFailed(Event):
    """The planner gave no answer, not even a fallback."""

    plan: PlanId
    cause: str


@value
class ShutdownStarted(Event):
    """The driver is shutting down: held turns are refused, new ones too, running ones finish."""
