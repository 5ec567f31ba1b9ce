"""Readers of each dialect's answers: decoded JSON in, facts gathered.

One class per dialect, each with `event` for a stream's event and `document` for a whole answer. They read
leniently: a field of the wrong type is absent. They must not know bytes, SSE framing or content codings.
"""

from typing import Protocol

import msgspec

from tao.gateway.wire import lenient
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.facts import FactsBuilder
from tao.gateway.wire.lenient import JsonObject


class AnswerReader(Protocol):
    """Fills a `FactsBuilder` from one answer."""

    def event(self, payload: JsonObject, into: FactsBuilder) -> None:
        """One event of a streamed answer."""

    def document(self, payload: JsonObject, into: FactsBuilder) -> None:
        """A whole answer."""


def reader_for(dialect: Dialect) -> AnswerReader | None:
    """The reader of `dialect`, None where there is nothing to read."""
    match dialect:
        case Dialect.OPENAI_CHAT | Dialect.OPENAI_COMPLETIONS:
            return OpenAiChoices()
        case Dialect.OPENAI_RESPONSES:
            return OpenAiResponse()
        case Dialect.ANTHROPIC_MESSAGES:
            return AnthropicMessage()
        case _:
            return None


class OpenAiChoices:
    """Chat completions and completions: `choices` with a delta, a message or a text."""

    def event(self, payload: JsonObject, into: FactsBuilder) -> None:
        self._read(payload, into)

    def document(self, payload: JsonObject, into: FactsBuilder) -> None:
        self._read(payload, into)
        into.complete = into.finish_reason is not None

    def _read(self, payload: JsonObject, into: FactsBuilder) -> None:
        # Most events of a stream bring one piece of text: what they lack is asked for by name only, not read.
        if into.response_id is None:
            into.identified(lenient.text(payload, "id"))
        if "error" in payload or payload.get("object") == "error":
            _read_error(payload, into)
        choices = payload.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                self._choice(position, choice, into)
        if payload.get("usage"):
            usage = lenient.child(payload, "usage")
            into.report_usage(
                lenient.count(usage, "prompt_tokens"),
                lenient.count(lenient.child(usage, "prompt_tokens_details"), "cached_tokens"),
                lenient.count(usage, "completion_tokens"),
            )

    def _choice(self, position: int, choice: JsonObject, into: FactsBuilder) -> None:
        if choice.get("finish_reason"):
            into.finished(lenient.text(choice, "finish_reason"))
        if "text" in choice:
            into.add_text(choice["text"])
        message = choice.get("delta") or choice.get("message")
        if not isinstance(message, dict):
            return
        if message.get("content"):
            into.add_text(message["content"])
        if hidden := message.get("reasoning_content") or message.get("reasoning"):
            into.add_hidden(hidden)
        if message.get("tool_calls") or message.get("function_call"):
            number = lenient.count(choice, "index")
            self._calls(position if number is None else number, message, into)

    @staticmethod
    def _calls(number: int, message: JsonObject, into: FactsBuilder) -> None:
        for position, call in enumerate(lenient.objects(message, "tool_calls")):
            slot = lenient.count(call, "index")
            key = (number, position if slot is None else slot)
            # `custom` tools of chat carry free text in `input`.
            function = lenient.child(call, "function") or lenient.child(call, "custom")
            into.begin_call(key, lenient.text(call, "id"), lenient.text(function, "name"))
            into.add_arguments(key, function.get("arguments") or function.get("input"))
        legacy = lenient.child(message, "function_call")
        if legacy:
            into.begin_call((number, -1), None, lenient.text(legacy, "name"))
            into.add_arguments((number, -1), legacy.get("arguments"))


class OpenAiResponse:
    """The responses API: typed events, each tool call an output item."""

    def event(self, payload: JsonObject, into: FactsBuilder) -> None:
        kind = lenient.text(payload, "type") or ""
        if kind.endswith(".delta"):
            self._delta(kind, payload, into)
        elif kind in {"response.output_item.added", "response.output_item.done"}:
            slot = lenient.count(payload, "output_index") or 0
            self._item(slot, lenient.child(payload, "item"), into)
        elif kind.startswith("response.") and "response" in payload:
            self._response(lenient.child(payload, "response"), into)
        elif kind == "error" or "error" in payload:
            _read_error(payload if "error" in payload else {"error": payload}, into)

    def document(self, payload: JsonObject, into: FactsBuilder) -> None:
        _read_error(payload, into)
        self._response(payload, into)
        for slot, item in enumerate(lenient.objects(payload, "output")):
            self._item(slot, item, into)
            for part in lenient.objects(item, "content"):
                into.add_text(part.get("text"))

    @staticmethod
    def _delta(kind: str, payload: JsonObject, into: FactsBuilder) -> None:
        delta = payload.get("delta")
        if kind in {"response.output_text.delta", "response.refusal.delta"}:
            into.add_text(delta)
        elif kind in {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}:
            into.add_arguments((lenient.count(payload, "output_index") or 0, 0), delta)
        else:
            into.add_hidden(delta)

    @staticmethod
    def _item(slot: int, item: JsonObject, into: FactsBuilder) -> None:
        kind = lenient.text(item, "type")
        call_id = lenient.text(item, "call_id") or lenient.text(item, "id")
        key = (slot, 0)
        if kind in {"function_call", "custom_tool_call"}:
            into.begin_call(key, call_id, lenient.text(item, "name"))
            whole = lenient.text(item, "arguments") or lenient.text(item, "input")
            if whole is not None:
                into.replace_arguments(key, whole)
        elif kind in {"local_shell_call", "shell_call"}:
            into.begin_call(key, call_id, "local_shell" if kind == "local_shell_call" else "shell")
            action = lenient.child(item, "action")
            if action:
                into.replace_arguments(key, msgspec.json.encode(action).decode())

    @staticmethod
    def _response(response: JsonObject, into: FactsBuilder) -> None:
        into.identified(lenient.text(response, "id"))
        _read_error(response, into)
        status = lenient.text(response, "status")
        if status in {"completed", "incomplete", "failed", "cancelled"}:
            into.complete = True
            into.finished(lenient.text(lenient.child(response, "incomplete_details"), "reason") or status)
        usage = lenient.child(response, "usage")
        if usage:
            into.report_usage(
                lenient.count(usage, "input_tokens"),
                lenient.count(lenient.child(usage, "input_tokens_details"), "cached_tokens"),
                lenient.count(usage, "output_tokens"),
            )


class AnthropicMessage:
    """The messages API: a message whose content blocks arrive one after the other."""

    def event(self, payload: JsonObject, into: FactsBuilder) -> None:
        slot = lenient.count(payload, "index") or 0
        match payload.get("type"):
            case "content_block_delta":
                self._delta(slot, lenient.child(payload, "delta"), into)
            case "content_block_start":
                self._block(slot, lenient.child(payload, "content_block"), into)
            case "message_start":
                message = lenient.child(payload, "message")
                into.identified(lenient.text(message, "id"))
                self._usage(message, into)
            case "message_delta":
                into.finished(lenient.text(lenient.child(payload, "delta"), "stop_reason"))
                self._usage(payload, into)
            case "message_stop":
                into.complete = True
            case _:
                _read_error(payload, into)

    def document(self, payload: JsonObject, into: FactsBuilder) -> None:
        _read_error(payload, into)
        into.identified(lenient.text(payload, "id"))
        into.finished(lenient.text(payload, "stop_reason"))
        into.complete = into.finish_reason is not None
        self._usage(payload, into)
        for slot, block in enumerate(lenient.objects(payload, "content")):
            self._block(slot, block, into)

    @staticmethod
    def _delta(slot: int, delta: JsonObject, into: FactsBuilder) -> None:
        if "text" in delta:
            into.add_text(delta["text"])
        elif "partial_json" in delta:
            into.add_arguments((slot, 0), delta["partial_json"])
        else:
            into.add_hidden(delta.get("thinking"))

    @staticmethod
    def _block(slot: int, block: JsonObject, into: FactsBuilder) -> None:
        into.add_text(block.get("text"))
        into.add_hidden(block.get("thinking"))
        # `server_tool_use` runs inside the engine's turn and is no wait.
        if block.get("type") == "tool_use":
            into.begin_call((slot, 0), lenient.text(block, "id"), lenient.text(block, "name"))
            given = lenient.child(block, "input")
            if given:
                into.replace_arguments((slot, 0), msgspec.json.encode(given).decode())

    @staticmethod
    def _usage(holder: JsonObject, into: FactsBuilder) -> None:
        """Anthropic's `input_tokens` leaves out what was read from or written to the cache."""
        usage = lenient.child(holder, "usage")
        fresh = lenient.count(usage, "input_tokens")
        cached = lenient.count(usage, "cache_read_input_tokens")
        written = lenient.count(usage, "cache_creation_input_tokens")
        parts = [part for part in (fresh, cached, written) if part is not None]
        into.report_usage(sum(parts) if parts else None, cached, lenient.count(usage, "output_tokens"))


def _read_error(payload: JsonObject, into: FactsBuilder) -> None:
    error = payload.get("error")
    if isinstance(error, str) and error:
        into.failed(error)
    elif isinstance(error, dict) and error:
        named = lenient.text(error, "message") or lenient.text(error, "type") or lenient.text(error, "code")
        into.failed(named or "unnamed error")
    elif payload.get("object") == "error":
        # vLLM's older form has the message at the top level.
        into.failed(lenient.text(payload, "message") or "unnamed error")
