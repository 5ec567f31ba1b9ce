"""OpenAI's /v1/responses, as vLLM speaks it; remembers a bounded number of responses for
`previous_response_id`.

It must not know HTTP or the engine.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tao.emulator.answer import CallDelta, Delta, TextDelta
from tao.emulator.chat import ROLES, content_parts, function_tools, openai_error, tools_text
from tao.emulator.conversation import (
    Conversation,
    Message,
    Part,
    Text,
    ToolCall,
    canonical_json,
    joined,
    render,
)
from tao.emulator.fields import BadRequestError, JsonObject, kind, objects, optional, positive
from tao.emulator.turn import Reply, StreamWriter, Turn, argument_chunks, session_id, sse

REMEMBERED = 1024


class ResponsesDialect:
    """/v1/responses"""

    id_prefix = "resp_"

    def __init__(self) -> None:
        self._remembered: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    def parse(self, body: JsonObject) -> Turn:
        messages: list[Message] = []
        previous = optional(body, "previous_response_id", str)
        if previous is not None:
            if previous not in self._remembered:
                raise BadRequestError(
                    f"Response with id '{previous}' not found.", status=404, field="previous_response_id"
                )
            messages += self._remembered[previous]
        instructions = optional(body, "instructions", str)
        if instructions:
            messages = [Message("instructions", (Text(instructions),)), *messages]
        messages += self._input(body.get("input"))
        tools = objects(optional(body, "tools", list) or [], "tools")
        conversation = Conversation(joined(messages), function_tools(tools), tools_text(tools))
        return Turn(
            model=optional(body, "model", str),
            prompt=render(conversation),
            conversation=conversation,
            stream=bool(optional(body, "stream", bool)),
            stream_usage=True,
            output_tokens_max=positive(body, "max_output_tokens"),
            output_tokens_min=optional(body, "min_tokens", int) or 0,
            ignore_eos=bool(optional(body, "ignore_eos", bool)),
            session_id=session_id(body),
        )

    def _input(self, given: Any) -> list[Message]:
        if isinstance(given, str) and given:
            return [Message("user", (Text(given),))]
        if not isinstance(given, list) or not given:
            raise BadRequestError(
                f"'input' must be a non-empty string or array of items, got {kind(given)}", field="input"
            )
        found: list[Message] = []
        for index, item in enumerate(objects(given, "input")):
            match item.get("type", "message"):
                case "message":
                    role = item.get("role")
                    if role not in ROLES:
                        raise BadRequestError(f"'input[{index}].role' is unknown: {role!r}", field="input")
                    found.append(
                        Message(
                            ROLES[role], tuple(content_parts(item.get("content"), f"input[{index}].content"))
                        )
                    )
                case "function_call" | "custom_tool_call":
                    arguments = canonical_json(item.get("arguments", item.get("input", {})))
                    call = ToolCall(str(item.get("call_id")), str(item.get("name")), arguments)
                    found.append(Message("assistant", (call,)))
                case "function_call_output" | "custom_tool_call_output":
                    found.append(
                        Message("tool", tuple(content_parts(item.get("output"), f"input[{index}].output")))
                    )
                case "reasoning":
                    pass  # what the model thought is not shown to it again
                case _:
                    found.append(Message("user", (Text(canonical_json(item)),)))
        return found

    def whole(self, reply: Reply, cached_tokens: int) -> JsonObject:
        self.remember(reply)
        return response(reply, cached_tokens, output_items(reply))

    def stream(self, reply: Reply) -> StreamWriter:
        return ResponsesStream(reply, self)

    def error(self, error: BadRequestError) -> JsonObject:
        return openai_error(error)

    def remember(self, reply: Reply) -> None:
        """Keep the conversation (without instructions, which hold for one response) and its answer."""
        said = (message for message in reply.turn.conversation.messages if message.role != "instructions")
        self._remembered[reply.id] = (*said, Message("assistant", reply.answer.parts))
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)


def output_items(reply: Reply) -> list[JsonObject]:
    return [_item(reply, number, part) for number, part in enumerate(reply.answer.parts)]


def _item(reply: Reply, number: int, part: Part, status: str = "completed") -> JsonObject:
    if isinstance(part, ToolCall):
        return {
            "id": f"fc_{reply.id[-16:]}_{number}",
            "type": "function_call",
            "call_id": part.id,
            "name": part.name,
            "arguments": part.arguments if status == "completed" else "",
            "status": status,
        }
    text = part.text if isinstance(part, Text) else ""
    return {
        "id": f"msg_{reply.id[-16:]}_{number}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_text_part(text)] if status == "completed" else [],
    }


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def response(reply: Reply, cached_tokens: int | None, output: list[JsonObject]) -> JsonObject:
    """The response object; without usage while it is in progress (`cached_tokens` None)."""
    incomplete = reply.answer.finish_reason == "length"
    done = cached_tokens is not None
    prompt, tokens = reply.turn.prompt.tokens, reply.answer.tokens
    return {
        "id": reply.id,
        "object": "response",
        "created_at": reply.created,
        "model": reply.model,
        "status": ("incomplete" if incomplete else "completed") if done else "in_progress",
        "incomplete_details": {"reason": "max_output_tokens"} if done and incomplete else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached_tokens},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + tokens,
        }
        if done
        else None,
    }


class ResponsesStream:
    def __init__(self, reply: Reply, dialect: ResponsesDialect) -> None:
        self._reply = reply
        self._dialect = dialect
        self._cached_tokens = 0
        self._sequence = 0
        self._open: int | None = None  # text part whose item is open
        self._parts = reply.answer.parts

    def _event(self, type_: str, **fields: Any) -> bytes:
        data = {"type": type_, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return sse(data, type_)

    def begin(self, cached_tokens: int) -> bytes:
        self._cached_tokens = cached_tokens
        started = response(self._reply, None, [])
        return self._event("response.created", response=started) + self._event(
            "response.in_progress", response=started
        )

    def deltas(self, deltas: list[Delta]) -> bytes:
        out = b""
        for delta in deltas:
            match delta:
                case TextDelta(part, text):
                    if self._open != part:
                        out += self._close() + self._open_text(part)
                    out += self._event(
                        "response.output_text.delta", **self._place(part), delta=text, logprobs=[]
                    )
                case CallDelta(part, call):
                    out += self._close() + self._call(part, call)
        return out

    def end(self) -> bytes:
        out = self._close()
        self._dialect.remember(self._reply)
        final = response(self._reply, self._cached_tokens, output_items(self._reply))
        return out + self._event(f"response.{final['status']}", response=final)

    def _place(self, part: int) -> JsonObject:
        item = _item(self._reply, part, self._parts[part])
        return {"item_id": item["id"], "output_index": part, "content_index": 0}

    def _open_text(self, part: int) -> bytes:
        self._open = part
        item = _item(self._reply, part, self._parts[part], "in_progress")
        return self._event("response.output_item.added", output_index=part, item=item) + self._event(
            "response.content_part.added", **self._place(part), part=_text_part("")
        )

    def _close(self) -> bytes:
        """End the open text item."""
        part, self._open = self._open, None
        if part is None:
            return b""
        item = _item(self._reply, part, self._parts[part])
        text = item["content"][0]["text"]
        return (
            self._event("response.output_text.done", **self._place(part), text=text, logprobs=[])
            + self._event("response.content_part.done", **self._place(part), part=_text_part(text))
            + self._event("response.output_item.done", output_index=part, item=item)
        )

    def _call(self, part: int, call: ToolCall) -> bytes:
        item = _item(self._reply, part, call)
        place = {"item_id": item["id"], "output_index": part}
        out = self._event(
            "response.output_item.added",
            output_index=part,
            item=_item(self._reply, part, call, "in_progress"),
        )
        for chunk in argument_chunks(call.arguments):
            out += self._event("response.function_call_arguments.delta", **place, delta=chunk)
        return (
            out
            + self._event(
                "response.function_call_arguments.done", **place, name=call.name, arguments=call.arguments
            )
            + self._event("response.output_item.done", output_index=part, item=item)
        )
