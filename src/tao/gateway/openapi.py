"""The OpenAPI document of what TAO adds to its engines' interfaces: tool reports, releases, operators' pages.

Served at `/openapi.json`. The schemas of tool reports are made from the types that read them, so they cannot disagree.
"""

from typing import Any

from tao import __version__
from tao.gateway import openapi_operators
from tao.gateway.toolreports import schemas

Json = dict[str, Any]


def document() -> Json:
    """The whole document, OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TAO",
            "version": __version__,
            "description": "What the gateway answers itself. Turns (/v1/chat/completions, /v1/messages, /v1/responses, "
            "/v1/completions) are the engines' own interfaces and pass through unchanged.",
        },
        "paths": {
            "/v1/tao/tools": {
                "post": _report("One event in the life of one tool call.", "ToolEvent", _EVENTS)
            },
            "/v1/tokencake/events": {
                "post": _report(
                    "The same in TokenCake's form. The session: the document's, a session header's, or the lifecycle.",
                    "StallEvent",
                    {"started": {"event": "stall_started", "lifecycle_id": "run-7", "kind": "search"}},
                )
            },
            "/v1/dynamo/tool-events": {
                "post": _report("The same as records of Dynamo's agent trace.", "DynamoRecord", _RECORDS)
            },
            "/close_session": {"post": _release()},
            **openapi_operators.paths(),
            **{path: {"get": _page(summary)} for path, summary in _PAGES.items()},
            "/explain/{session}": {
                "get": {
                    **_page(
                        "Why a session waits or where it went; its running tools and each evidence on their return."
                    ),
                    "parameters": [
                        {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}}
                    ],
                }
            },
        },
        "components": {
            "schemas": {**schemas(), **openapi_operators.schemas(), "Outcome": _OUTCOME, "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "admin": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of --admin-token-file.",
                },
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


_PAGES = {
    "/healthz": "Whether the process works.",
    "/readyz": "Whether it takes turns.",
    "/state": "Replicas, sessions and counters.",
    "/metrics": "Prometheus' text format.",
    "/openapi.json": "This document.",
}
_EVENTS: Json = {
    "start": {
        "session": "fix-17",
        "event": "start",
        "call_id": "call_1",
        "tool": "bash",
        "command": "make test",
    },
    "progress": {"session": "fix-17", "event": "progress", "call_id": "call_1", "fraction_done": 0.4},
    "deadline": {"session": "fix-17", "event": "deadline", "call_id": "call_1", "remaining_seconds": 12.5},
    "end": {"session": "fix-17", "event": "end", "call_id": "call_1", "duration_seconds": 31.2},
}
_RECORDS: Json = {
    "end": {
        "event_type": "tool_end",
        "agent_context": {"session_id": "run-7", "trajectory_id": "run-7:main"},
        "tool": {"tool_call_id": "call_1", "tool_class": "search", "duration_ms": 840},
    }
}
_OUTCOME: Json = {
    "type": "object",
    "required": ["session_id", "call_id", "outcome", "tools_running", "session_over"],
    "properties": {
        "session_id": {"type": "string", "description": "The session's full id, with its tenant."},
        "call_id": {"type": "string"},
        "outcome": {
            "enum": ["applied", "noted", "repeated", "late"],
            "description": "applied: taken into account. noted: will be, when the session's turn has ended. repeated: "
            "known already, nothing changed. late: the session has moved on.",
        },
        "tools_running": {"type": "array", "items": {"type": "string"}},
        "session_over": {"type": "boolean", "description": "Whether all tools of the session have ended."},
    },
}
_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {
                    "enum": [
                        "malformed_request",
                        "unauthorised",
                        "admin_off",
                        "unknown_replica",
                        "method_not_allowed",
                        "malformed_event",
                        "unknown_session",
                        "unknown_call",
                        "conflicting_event",
                        "too_many_calls",
                    ]
                },
            },
        }
    },
}


def _report(summary: str, schema: str, examples: Json) -> Json:
    body = {
        "schema": {"$ref": f"#/components/schemas/{schema}"},
        "examples": {name: {"value": value} for name, value in examples.items()},
    }
    refusals = {
        "400": "The document cannot be read, or a field has no meaning in this event.",
        "404": "No open session of this API key, or no reported call, has this id.",
        "409": "The event contradicts an earlier one of the same call.",
        "429": "The session has as many calls open as it may.",
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    told = {"application/json": {"schema": {"$ref": "#/components/schemas/Outcome"}}}
    return {
        "summary": summary,
        "description": "Idempotent: sending an event again changes nothing. Sessions are scoped by API key.",
        "security": [{"bearer": []}, {"key": []}, {}],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": {"description": "Taken in.", "content": told},
            **{status: {"description": text, "content": error} for status, text in refusals.items()},
        },
    }


def _release() -> Json:
    body = {
        "schema": {
            "type": "object",
            "required": ["session_id"],
            "properties": {"session_id": {"type": "string"}},
        }
    }
    return {
        "summary": "The session has ended. Also /finish_session and, with program_id, /programs/release.",
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": {"description": "Whether it was known."},
            "400": {"description": "It names no session."},
        },
    }


def _page(summary: str) -> Json:
    return {"summary": summary, "responses": {"200": {"description": "The page."}}}
