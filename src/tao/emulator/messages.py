"""Anthropic's /v1/messages and its count_tokens, as vLLM speaks them.

`usage` follows Anthropic's contract, as in vLLM since pull request 40912: input_tokens leaves out the
cached ones, which are cache_read_input_tokens; cache_creation_input_tokens is 0. It must not know HTTP or
the engine.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tao.emulator.answer import CallDelta, Delta, TextDelta
from tao.emulator.chat import tools_text
from tao.emulator.conversation import (
    BILLING_PREFIX,
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

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def usage(reply: Reply, cached_tokens: int, output_tokens: int) -> JsonObject:
    return {
        "input_tokens": reply.turn.prompt.tokens - cached_tokens,
        "output_tokens": output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
    }


def blocks(content: Any, field: str) -> list[JsonObject]:
    """Content as a list of blocks, also where it is spelled as a string."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise BadRequestError(
            f"'{field}' must be a string or an array of blocks, got {kind(content)}", field=field
        )
    return objects(content, field)


def block_part(block: JsonObject) -> Part | None:
    """A content block as a part; None for one that the model does not see."""
    match block.get("type"):
        case "text":
            text = block.get("text")
            return None if not isinstance(text, str) or text.startswith(BILLING_PREFIX) else Text(text)
        case "thinking":
            return Text(str(block.get("thinking")))
        case "redacted_thinking":
            return None
        case "tool_use":
            return ToolCall(
                str(block.get("id")), str(block.get("name")), canonical_json(block.get("input") or {})
            )
        case _:
            return Image(canonical_json({k: v for k, v in block.items() if k != "cache_control"}))


def split_message(message: JsonObject, index: int) -> list[Message]:
    """A message and, before it, one tool message for each tool result in it."""
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise BadRequestError(
            f"'messages[{index}].role' must be user or assistant, got {role!r}", field="messages"
        )
    results: list[Message] = []
    parts: list[Part] = []
    for block in blocks(message.get("content"), f"messages[{index}].content"):
        if block.get("type") == "tool_result":
            content = blocks(block.get("content") or [], f"messages[{index}].content")
            results.append(
                Message("tool", tuple(part for part in map(block_part, content) if part is not None))
            )
        elif (part := block_part(block)) is not None:
            parts.append(part)
    return [*results, Message(role, tuple(parts))] if parts or not results else results


def parse_conversation(body: JsonObject) -> Conversation:
    messages = objects(required(body, "messages", list), "messages")
    if not messages:
        raise BadRequestError("'messages' must not be empty", field="messages")
    parsed: list[Message] = []
    if body.get("system"):
        system = [part for part in map(block_part, blocks(body["system"], "system")) if part is not None]
        parsed.append(Message("system", tuple(system)))
    for index, message in enumerate(messages):
        parsed += split_message(message, index)
    tools = objects(optional(body, "tools", list) or [], "tools")
    offered = []
    for tool in tools:
        schema = tool.get("input_schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        names = tuple(properties) if isinstance(properties, dict) else ()
        offered.append(Tool(str(tool.get("name")), names))
    bare = [{k: v for k, v in tool.items() if k != "cache_control"} for tool in tools]
    return Conversation(joined(parsed), tuple(offered), tools_text(bare))


class MessagesDialect:
    """/v1/messages"""

    id_prefix = "msg_"

    def parse(self, body: JsonObject) -> Turn:
        conversation = parse_conversation(body)
        return Turn(
            model=optional(body, "model", str),
            prompt=render(conversation),
            conversation=conversation,
            stream=bool(optional(body, "stream", bool)),
            stream_usage=True,
            output_tokens_max=positive(body, "max_tokens") or required(body, "max_tokens", int),
            output_tokens_min=optional(body, "min_tokens", int) or 0,
            ignore_eos=bool(optional(body, "ignore_eos", bool)),
            session_id=session_id(body),
        )

    def whole(self, reply: Reply, cached_tokens: int) -> JsonObject:
        content: list[JsonObject] = []
        for part in reply.answer.parts:
            match part:
                case Text(text):
                    content.append({"type": "text", "text": text})
                case ToolCall(id_, name, arguments):
                    content.append(
                        {"type": "tool_use", "id": id_, "name": name, "input": msgspec.json.decode(arguments)}
                    )
        return {
            "id": reply.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": reply.model,
            "stop_reason": STOP_REASONS[reply.answer.finish_reason],
            "stop_sequence": None,
            "usage": usage(reply, cached_tokens, reply.answer.tokens),
        }

    def stream(self, reply: Reply) -> StreamWriter:
        return MessagesStream(reply)

    def error(self, error: BadRequestError) -> JsonObject:
        kinds = {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}
        kind_ = kinds.get(error.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind_, "message": error.message}}


class MessagesStream:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._cached_tokens = 0
        self._index = -1  # of the open content block
        self._open: int | None = None  # part that the open block shows

    def begin(self, cached_tokens: int) -> bytes:
        self._cached_tokens = cached_tokens
        message: JsonObject = {
            "id": self._reply.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._reply.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage(self._reply, cached_tokens, 0),
        }
        return sse({"type": "message_start", "message": message}, "message_start")

    def deltas(self, deltas: list[Delta]) -> bytes:
        out = b""
        for delta in deltas:
            match delta:
                case TextDelta(part, text):
                    if self._open != part:
                        out += self._start(part, {"type": "text", "text": ""})
                    out += self._delta({"type": "text_delta", "text": text})
                case CallDelta(part, call):
                    out += self._start(
                        part, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
                    )
                    for chunk in argument_chunks(call.arguments):
                        out += self._delta({"type": "input_json_delta", "partial_json": chunk})
        return out

    def end(self) -> bytes:
        stop = STOP_REASONS[self._reply.answer.finish_reason]
        counts = usage(self._reply, self._cached_tokens, self._reply.answer.tokens)
        delta = {"stop_reason": stop, "stop_sequence": None}
        return (
            self._stop()
            + sse({"type": "message_delta", "delta": delta, "usage": counts}, "message_delta")
            + sse({"type": "message_stop"}, "message_stop")
        )

    def _start(self, part: int, block: JsonObject) -> bytes:
        out = self._stop()
        self._index += 1
        self._open = part
        event = "content_block_start"
        return out + sse({"type": event, "index": self._index, "content_block": block}, event)

    def _delta(self, delta: JsonObject) -> bytes:
        event = "content_block_delta"
        return sse({"type": event, "index": self._index, "delta": delta}, event)

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        event = "content_block_stop"
        return sse({"type": event, "index": self._index}, event)
