"""Requests and streams as the real clients and engines write them, for the tests of this folder."""

import json
from typing import Any

from tao.gateway.wire.requests import ParsedRequest, parse_request

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "You are an agent. " * 20}


def request(path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> ParsedRequest:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return parse_request("POST", path, raw, json.dumps(body).encode())


def chat(
    messages: list[dict[str, Any]],
    *,
    headers: dict[str, str] | None = None,
    tools: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> ParsedRequest:
    body: dict[str, Any] = {"model": "tiny", "messages": messages, **fields}
    if tools is not None:
        body["tools"] = tools
    return request(PATHS["chat"], body, headers)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, call_id: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call_id is not None:
        function = {"name": "bash", "arguments": '{"command": "ls"}'}
        message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
    return message


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def sse(events: list[dict[str, Any]], *, named: bool = False, done: bool = True) -> bytes:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return "".join(lines).encode() + (b"data: [DONE]\n\n" if done else b"")
