"""What the gateway itself says to a client: refusals, its own pages, and the headers that it adds to an engine's answer.

Form only: the dialects' documents are made by `wire.refusals`, and who is refused is decided by the core.
"""

from typing import Any

from tao.core.commands import DispatchTurn, Refusal
from tao.core.ids import SessionId
from tao.gateway.exchange import Client, ClientRequest, RawHeaders
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.refusals import Problem, error_event, refusal

SSE_HEADERS: RawHeaders = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
JSON = b"application/json"

REFUSALS: dict[Refusal, tuple[Problem, str, float | None]] = {
    Refusal.POOL_FULL: (
        Problem.POOL_FULL,
        "the waiting pool of TAO is full; try again later",
        30.0,
    ),
    Refusal.NO_REPLICA: (
        Problem.UNAVAILABLE,
        "no replica is up, or all that are up drain; TAO waited for one as long as it may",
        10.0,
    ),
    Refusal.SHUTTING_DOWN: (Problem.DRAINING, "TAO is shutting down; try another gateway", 5.0),
    Refusal.REPLICA_FAILED: (
        Problem.UPSTREAM_FAILED,
        "the replica failed before it answered, and no other one could answer in its place",
        None,
    ),
    Refusal.SESSION_ENDED: (
        Problem.UNAVAILABLE,
        "the session was released while this request was held",
        None,
    ),
}
"""What a client is told: the problem, a sentence, and after how many seconds it may try again."""


async def answer(client: Client, status: int, content_type: bytes, body: bytes) -> None:
    """A complete answer of the gateway's own."""
    headers = ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))
    await client.start(status, headers)
    await client.send(body)
    await client.finish()


async def refuse(
    client: Client,
    dialect: Dialect,
    problem: Problem,
    message: str,
    *,
    retry_after_seconds: float | None = None,
    headers: RawHeaders = (),
) -> None:
    """An error in the client's dialect: a whole answer, or the last event of a stream that has begun already."""
    if client.started:
        await client.send(error_event(dialect, problem, message))
        await client.finish()
        return
    told = refusal(dialect, problem, message, retry_after_seconds)
    await client.start(told.status, (*told.headers, *headers))
    await client.send(told.body)
    await client.finish()


def session_headers(session: SessionId) -> RawHeaders:
    """Which session TAO took the request for."""
    return ((b"x-tao-session", session.encode("latin-1", "replace")),)


def held_headers(session: SessionId) -> RawHeaders:
    """What is known of a held stream when its headers have to go out."""
    return (*SSE_HEADERS, *session_headers(session), (b"x-tao-decision", b"held"))


def decision_headers(session: SessionId, outcome: DispatchTurn) -> RawHeaders:
    """Where a turn went, why, and how long it was held (model seconds)."""
    decision = f"replica={outcome.replica}; reason={outcome.reason.value}"
    return (
        *session_headers(session),
        (b"x-tao-decision", decision.encode("latin-1", "replace")),
        (b"x-tao-hold-seconds", b"%.3f" % outcome.hold_seconds),
    )


def error_document(kind: str, message: str) -> dict[str, Any]:
    """An error at a path of TAO's own: `Error` in the OpenAPI document."""
    return {"error": {"message": message, "type": kind}}


def wrong_method(request: ClientRequest) -> tuple[int, dict[str, Any]]:
    """Status and document for anything but a POST where TAO takes nothing else."""
    return 405, error_document("method_not_allowed", f"{request.path} takes POST, not {request.method}")


def decision_comment(outcome: DispatchTurn) -> bytes:
    """The same for a stream whose headers went out while it was held: comments, which every SSE client passes over."""
    decision = f": x-tao-decision: replica={outcome.replica}; reason={outcome.reason.value}\n"
    return decision.encode("latin-1", "replace") + b": x-tao-hold-seconds: %.3f\n\n" % outcome.hold_seconds


def header(headers: RawHeaders, name: bytes) -> bytes:
    """The first value of a header, given in lower case; empty where there is none."""
    return next((value for key, value in headers if key.lower() == name), b"").strip()


def content_of(headers: RawHeaders) -> tuple[str, str]:
    """Content type and content coding of an answer with these headers (lower-case names); empty where not named."""
    kind = coding = b""
    for name, value in headers:
        if name == b"content-type":
            kind = kind or value
        elif name == b"content-encoding":
            coding = coding or value
    return kind.decode("latin-1").strip(), coding.decode("latin-1").strip()


def takes_events(headers: RawHeaders) -> bool:
    """Whether an event of TAO's own can be put into an answer with these headers: a stream of events in plain text."""
    stream = header(headers, b"content-type").lower().startswith(b"text/event-stream")
    return stream and header(headers, b"content-encoding").lower() in {b"", b"identity"}
