"""What clients may report of their tools, as documents: TAO's own, TokenCake's and Dynamo's. Bytes in, `ToolReport` out.

TAO's own document is strict: an unknown or misplaced field is an error, so that no typing mistake is silently ignored. The
other two are read as their makers send them, unknown fields included. Spans are the client's wall-clock seconds. This file
must not know sessions, the core or HTTP.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from tao.gateway.wire.lenient import MALFORMED_JSON
from tao.gateway.wire.requests import MalformedRequestError

ID_CHARS_MAX = 256
NAME_CHARS_MAX = 128
COMMAND_CHARS_MAX = 16_384
SECONDS_MAX = 1e7

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Document = TypeVar("Document", bound=msgspec.Struct)


class ReportKind(StrEnum):
    """What happened to a tool call."""

    START = "start"
    PROGRESS = "progress"
    DEADLINE = "deadline"
    END = "end"


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One report. `session`: the client's own id of it. `tool` is empty where the report does not name it.

    `remaining_seconds`: until the tool returns, as the client expects. `fraction_done`: 0 to 1. `duration_seconds`: how long
    the call took, measured by the client. `must_be_known`: the call must have been reported before.
    """

    kind: ReportKind
    session: str
    call_id: str
    tool: str = ""
    command: str = ""
    remaining_seconds: float | None = None
    fraction_done: float | None = None
    duration_seconds: float | None = None
    must_be_known: bool = False


class ToolEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tao/tools`: one event in the life of one tool call."""

    session: Id
    event: Literal["start", "progress", "deadline", "end"]
    call_id: Id
    tool: Name | None = None
    command: Annotated[str, msgspec.Meta(max_length=COMMAND_CHARS_MAX)] | None = None
    expected_seconds: Seconds | None = None
    remaining_seconds: Seconds | None = None
    fraction_done: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    duration_seconds: Seconds | None = None


FIELDS_OF = {
    ReportKind.START: {"tool", "command", "expected_seconds"},
    ReportKind.PROGRESS: {"tool", "remaining_seconds", "fraction_done"},
    ReportKind.DEADLINE: {"tool", "remaining_seconds"},
    ReportKind.END: {"tool", "duration_seconds"},
}
"""Which of the optional fields have a meaning in which event."""


class StallEvent(msgspec.Struct, frozen=True):
    """The body of `POST /v1/tokencake/events`. The session is named beside it, or is the lifecycle itself."""

    event: Literal["stall_started", "stall_finished"]
    lifecycle_id: Id
    kind: Name | None = None
    estimated_duration_s: Seconds | None = None
    session_id: Id | None = None
    program_id: Id | None = None


class DynamoContext(msgspec.Struct, frozen=True):
    """Whose tool it is: the trajectory is the conversation, the session the whole run."""

    session_id: Id | None = None
    trajectory_id: Id | None = None


class DynamoTool(msgspec.Struct, frozen=True):
    """The tool call of a Dynamo record."""

    tool_call_id: Id
    tool_class: Name | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX * 1000)] | None = None


class DynamoRecord(msgspec.Struct, frozen=True):
    """The body of `POST /v1/dynamo/tool-events`: a tool record of Dynamo's agent trace, as JSON."""

    event_type: Literal["tool_start", "tool_end", "tool_error"]
    tool: DynamoTool
    agent_context: DynamoContext | None = None
    trajectory_id: Id | None = None
    session_id: Id | None = None


def tool_event(body: bytes) -> ToolReport:
    """TAO's own. Raises `MalformedRequestError`."""
    document = _decoded(body, ToolEvent)
    kind = ReportKind(document.event)
    for field in msgspec.structs.fields(ToolEvent)[3:]:
        if getattr(document, field.name) is not None and field.name not in FIELDS_OF[kind]:
            known = ", ".join(sorted(FIELDS_OF[kind]))
            raise MalformedRequestError(
                f"'{field.name}' means nothing in a '{kind}' event, which has: {known}"
            )
    if kind is ReportKind.START and document.tool is None:
        raise MalformedRequestError("a 'start' event needs 'tool', the name of the tool")
    if kind is ReportKind.DEADLINE and document.remaining_seconds is None:
        raise MalformedRequestError("a 'deadline' event needs 'remaining_seconds'")
    told = (document.remaining_seconds, document.fraction_done)
    if kind is ReportKind.PROGRESS and told.count(None) != 1:
        raise MalformedRequestError("a 'progress' event needs either 'remaining_seconds' or 'fraction_done'")
    return ToolReport(
        kind,
        document.session,
        document.call_id,
        document.tool or "",
        document.command or "",
        document.expected_seconds if kind is ReportKind.START else document.remaining_seconds,
        document.fraction_done,
        document.duration_seconds,
        must_be_known=document.tool is None,
    )


def stall_event(body: bytes, session: str) -> ToolReport:
    """TokenCake's. `session`: what the request's headers name, or nothing. Raises `MalformedRequestError`."""
    document = _decoded(body, StallEvent)
    started = document.event == "stall_started"
    return ToolReport(
        ReportKind.START if started else ReportKind.END,
        document.session_id or document.program_id or session or document.lifecycle_id,
        document.lifecycle_id,
        document.kind or ("stall" if started else ""),
        remaining_seconds=document.estimated_duration_s if started else None,
        must_be_known=not started,
    )


def dynamo_record(body: bytes, session: str) -> ToolReport:
    """Dynamo's. A tool that failed has ended too. Raises `MalformedRequestError`."""
    document = _decoded(body, DynamoRecord)
    context = document.agent_context or DynamoContext()
    named = context.trajectory_id or document.trajectory_id or context.session_id or document.session_id
    if not (named or session):
        raise MalformedRequestError("the record names no session: send 'trajectory_id' or 'session_id'")
    milliseconds = document.tool.duration_ms
    return ToolReport(
        ReportKind.START if document.event_type == "tool_start" else ReportKind.END,
        named or session,
        document.tool.tool_call_id,
        document.tool.tool_class or "tool",
        duration_seconds=None if milliseconds is None else milliseconds / 1000,
    )


def _decoded(body: bytes, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED_JSON as error:
        raise MalformedRequestError(f"the event cannot be read: {error}") from None


def schemas() -> dict[str, Any]:
    """JSON Schemas of the documents, by name, as they are in force above."""
    kinds = (ToolEvent, StallEvent, DynamoRecord)
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return components
