"""OpenAI's /v1/chat/completions, as vLLM speaks it, and what it shares with OpenAI's other dialects.

It must not know HTTP or the engine.
"""

from __future__ import annotations

from typing import Any

from tao.emulator.answer import CallDelta, Delta, TextDelta
from tao.emulator.conversation import (
    Conversation,
    Image,
    Message,
    Part,
    Text,
    Tool,
    ToolCall,
    canonical_json,
    joined,
    render,
)
from tao.emulator.fields import BadRequestError, JsonObject, kind, objects, optional, positive, required
from tao.emulator.turn import Reply, StreamWriter, Turn, argument_chunks, session_id, sse

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def openai_error(error: BadRequestError) -> JsonObject:
    """vLLM's error body for the OpenAI endpoints."""
    kinds = {404: "NotFoundError", 413: "RequestEntityTooLarge", 503: "ServiceUnavailableError"}
    return {
        "error": {
            "message": error.message,
            "type": kinds.get(error.status, "BadRequestError"),
            "param": error.field,
            "code": error.status,
        }
    }


def usage(reply: Reply, cached_tokens: int) -> JsonObject:
    prompt, output = reply.turn.prompt.tokens, reply.answer.tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def function_tools(tools: list[JsonObject], field: str = "function") -> tuple[Tool, ...]:
    """Tools of the OpenAI dialects: nested under "function" (chat) or flat (responses)."""
    found = []
    for tool in tools:
        inner = tool.get(field, tool)
        name = inner.get("name") if isinstance(inner, dict) else None
        if not isinstance(name, str):
            name = str(tool.get("type"))  # a built-in tool without a name
        schema = inner.get("parameters") if isinstance(inner, dict) else None
        properties = schema.get("properties") if isinstance(schema, dict) else None
        found.append(Tool(name, tuple(properties) if isinstance(properties, dict) else ()))
    return tuple(found)


def tools_text(tools: list[JsonObject]) -> str:
    return canonical_json(tools) if tools else ""


def content_parts(content: Any, field: str) -> list[Part]:
    """A string, null, or a list of typed parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        raise BadRequestError(
            f"'{field}' must be a string or an array of parts, got {kind(content)}", field=field
        )
    parts: list[Part] = []
    for part in objects(content, field):
        text = part.get("text", part.get("refusal", part.get("thinking")))
        parts.append(Text(text) if isinstance(text, str) else Image(canonical_json(part)))
    return parts


class ChatDialect:
    """/v1/chat/completions"""

    id_prefix = "chatcmpl-"

    def parse(self, body: JsonObject) -> Turn:
        messages = objects(required(body, "messages", list), "messages")
        if not messages:
            raise BadRequestError("'messages' must not be empty", field="messages")
        if optional(body, "n", int) not in (None, 1):
            raise BadRequestError("'n' above 1 is not supported by this emulator", field="n")
        tools = objects(optional(body, "tools", list) or [], "tools")
        parsed = joined(self._message(message, index) for index, message in enumerate(messages))
        conversation = Conversation(parsed, function_tools(tools), tools_text(tools))
        options = optional(body, "stream_options", dict) or {}
        return Turn(
            model=optional(body, "model", str),
            prompt=render(conversation),
            conversation=conversation,
            stream=bool(optional(body, "stream", bool)),
            stream_usage=bool(options.get("include_usage")),
            output_tokens_max=positive(body, "max_completion_tokens", "max_tokens"),
            output_tokens_min=optional(body, "min_tokens", int) or 0,
            ignore_eos=bool(optional(body, "ignore_eos", bool)),
            session_id=session_id(body),
        )

    def _message(self, message: JsonObject, index: int) -> Message:
        role = message.get("role")
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise BadRequestError(
                f"'messages[{index}].role' must be one of {known}, got {role!r}", field="messages"
            )
        parts = content_parts(message.get("content"), f"messages[{index}].content")
        for call in objects(optional(message, "tool_calls", list) or [], f"messages[{index}].tool_calls"):
            function = required(call, "function", dict)
            parts.append(
                ToolCall(
                    str(call.get("id")),
                    str(function.get("name")),
                    canonical_json(function.get("arguments", {})),
                )
            )
        return Message(ROLES[role], tuple(parts))

    def whole(self, reply: Reply, cached_tokens: int) -> JsonObject:
        parts = reply.answer.parts
        text = "".join(part.text for part in parts if isinstance(part, Text))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        return {
            "id": reply.id,
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": text if text or not calls else None,
                        "tool_calls": [
                            {
                                "id": call.id,
                                "type": "function",
                                "function": {"name": call.name, "arguments": call.arguments},
                            }
                            for call in calls
                        ],
                    },
                    "logprobs": None,
                    "finish_reason": reply.answer.finish_reason,
                    "stop_reason": None,
                }
            ],
            "usage": usage(reply, cached_tokens),
        }

    def stream(self, reply: Reply) -> StreamWriter:
        return ChatStream(reply)

    def error(self, error: BadRequestError) -> JsonObject:
        return openai_error(error)


class ChatStream:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._cached_tokens = 0
        self._calls = 0

    def _chunk(self, choices: list[JsonObject]) -> JsonObject:
        reply = self._reply
        return {
            "id": reply.id,
            "object": "chat.completion.chunk",
            "created": reply.created,
            "model": reply.model,
            "choices": choices,
        }

    def _delta(self, delta: JsonObject, finish_reason: str | None = None) -> bytes:
        return sse(
            self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}])
        )

    def begin(self, cached_tokens: int) -> bytes:
        self._cached_tokens = cached_tokens
        return self._delta({"role": "assistant", "content": ""})

    def deltas(self, deltas: list[Delta]) -> bytes:
        out = b""
        for delta in deltas:
            match delta:
                case TextDelta(_, text):
                    out += self._delta({"content": text})
                case CallDelta(_, call):
                    index, self._calls = self._calls, self._calls + 1
                    head = {"name": call.name, "arguments": ""}
                    out += self._delta(
                        {
                            "tool_calls": [
                                {"index": index, "id": call.id, "type": "function", "function": head}
                            ]
                        }
                    )
                    for chunk in argument_chunks(call.arguments):
                        out += self._delta(
                            {"tool_calls": [{"index": index, "function": {"arguments": chunk}}]}
                        )
        return out

    def end(self) -> bytes:
        out = self._delta({"content": ""}, self._reply.answer.finish_reason)
        if self._reply.turn.stream_usage:
            out += sse({**self._chunk([]), "usage": usage(self._reply, self._cached_tokens)})
        return out + b"data: [DONE]\n\n"
