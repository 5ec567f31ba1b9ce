"""What TAO itself says to a client, in the client's dialect: errors, in-stream errors, keep-alives.

Once bytes of a stream are out the status is 200, so a later failure must be an event of the stream. Retry-
After is a whole number of seconds and at most 60: Claude Code stops retrying above that. It must not know why
the gateway refuses, nor HTTP servers.
"""

import math
from dataclasses import dataclass
from enum import Enum

import msgspec

from tao.gateway.wire.dialects import Dialect

RETRY_AFTER_SECONDS_MAX = 60

_SSE_COMMENT = b": keep-alive\n\n"
_ANTHROPIC_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


class Problem(Enum):
    """What went wrong: (OpenAI status, Anthropic status, OpenAI error type, OpenAI code, Anthropic error
    type).
    """

    MALFORMED = (400, 400, "invalid_request_error", "malformed_request", "invalid_request_error")
    IDENTITY_CONFLICT = (400, 400, "invalid_request_error", "session_id_conflict", "invalid_request_error")
    NOT_FOUND = (404, 404, "invalid_request_error", "not_found", "not_found_error")
    UNKNOWN_MODEL = (404, 404, "invalid_request_error", "model_not_found", "not_found_error")
    TOO_LARGE = (413, 413, "invalid_request_error", "request_too_large", "request_too_large")
    POOL_FULL = (429, 529, "rate_limit_error", "waiting_pool_full", "overloaded_error")
    INTERNAL = (500, 500, "server_error", "internal_error", "api_error")
    UPSTREAM_FAILED = (502, 502, "server_error", "upstream_failed", "api_error")
    UNAVAILABLE = (503, 503, "server_error", "no_replica", "api_error")
    DRAINING = (503, 503, "server_error", "draining", "api_error")
    UPSTREAM_TIMEOUT = (504, 504, "server_error", "upstream_timeout", "timeout_error")

    def status(self, dialect: Dialect) -> int:
        """The HTTP status for a client of `dialect`."""
        return self.value[1] if dialect.anthropic else self.value[0]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A complete answer: status, headers (lower-case names), body."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def refusal(
    dialect: Dialect, problem: Problem, message: str, retry_after_seconds: float | None = None
) -> Refusal:
    """The whole answer for a request of which nothing has been answered yet."""
    body = error_body(dialect, problem, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % retry_after(retry_after_seconds)))
    return Refusal(problem.status(dialect), tuple(headers), body)


def retry_after(seconds: float) -> int:
    """`seconds` as clients can read it: whole, between 1 and `RETRY_AFTER_SECONDS_MAX`."""
    if not math.isfinite(seconds):
        return RETRY_AFTER_SECONDS_MAX
    return max(1, min(RETRY_AFTER_SECONDS_MAX, math.ceil(seconds)))


def error_body(dialect: Dialect, problem: Problem, message: str) -> bytes:
    """The JSON error document of `dialect`."""
    return msgspec.json.encode(_error_document(dialect, problem, message))


def _error_document(dialect: Dialect, problem: Problem, message: str) -> dict[str, object]:
    if dialect.anthropic:
        return {"type": "error", "error": {"type": problem.value[4], "message": message}}
    return {"error": {"message": message, "type": problem.value[2], "param": None, "code": problem.value[3]}}


def error_event(dialect: Dialect, problem: Problem, message: str) -> bytes:
    """Bytes that end a stream of `dialect` with an error that its clients notice.

    For responses two events are sent: Codex reads `response.failed`, the OpenAI SDK raises on `error`.
    """
    body = error_body(dialect, problem, message)
    if dialect.anthropic:
        return b"event: error\ndata: " + body + b"\n\n"
    if dialect is not Dialect.OPENAI_RESPONSES:
        return b"data: " + body + b"\n\ndata: [DONE]\n\n"
    detail = {"code": problem.value[3], "message": message}
    failed = {
        "type": "response.failed",
        "response": {
            "id": "resp_tao_failed",
            "object": "response",
            "status": "failed",
            "error": detail,
            "output": [],
        },
    }
    error = {"type": "error", **detail, "param": None, **_error_document(dialect, problem, message)}
    return b"event: response.failed\ndata: %b\n\nevent: error\ndata: %b\n\n" % (
        msgspec.json.encode(failed),
        msgspec.json.encode(error),
    )


def keep_alive(dialect: Dialect) -> bytes:
    """Bytes that keep a held stream of `dialect` alive and mean nothing to its clients."""
    return _ANTHROPIC_PING if dialect.anthropic else _SSE_COMMENT
