"""OpenAI's /v1/completions, as vLLM speaks it.

It must not know HTTP or the engine.
"""

from __future__ import annotations

from tao.emulator.answer import Delta, TextDelta
from tao.emulator.chat import openai_error, usage
from tao.emulator.conversation import Conversation, Message, Text
from tao.emulator.fields import BadRequestError, JsonObject, optional, positive
from tao.emulator.tokens import pieces
from tao.emulator.turn import Reply, StreamWriter, Turn, session_id, sse
from tao.enginemodel import Chain


class CompletionsDialect:
    """/v1/completions"""

    id_prefix = "cmpl-"

    def parse(self, body: JsonObject) -> Turn:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str) and prompt:
            data = prompt.encode("utf-8", "surrogatepass")
        elif (
            isinstance(prompt, list)
            and prompt
            and all(type(token) is int and 0 <= token < 1 << 32 for token in prompt)
        ):
            data = b"".join(token.to_bytes(4, "little") for token in prompt)
            prompt = ""
        else:
            raise BadRequestError(
                "'prompt' must be one non-empty string or array of token ids", field="prompt"
            )
        options = optional(body, "stream_options", dict) or {}
        return Turn(
            model=optional(body, "model", str),
            prompt=Chain.of(pieces(data)),
            conversation=Conversation((Message("user", (Text(prompt),)),)),
            stream=bool(optional(body, "stream", bool)),
            stream_usage=bool(options.get("include_usage")),
            output_tokens_max=positive(body, "max_tokens") or 16,
            output_tokens_min=optional(body, "min_tokens", int) or 0,
            ignore_eos=bool(optional(body, "ignore_eos", bool)),
            session_id=session_id(body),
        )

    def whole(self, reply: Reply, cached_tokens: int) -> JsonObject:
        text = "".join(part.text for part in reply.answer.parts if isinstance(part, Text))
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reply.answer.finish_reason}
        return {
            "id": reply.id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [{**choice, "stop_reason": None}],
            "usage": usage(reply, cached_tokens),
        }

    def stream(self, reply: Reply) -> StreamWriter:
        return CompletionsStream(reply)

    def error(self, error: BadRequestError) -> JsonObject:
        return openai_error(error)


class CompletionsStream:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._cached_tokens = 0

    def _chunk(self, text: str, finish_reason: str | None = None) -> JsonObject:
        reply = self._reply
        return {
            "id": reply.id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}],
        }

    def begin(self, cached_tokens: int) -> bytes:
        self._cached_tokens = cached_tokens
        return b""

    def deltas(self, deltas: list[Delta]) -> bytes:
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        return sse(self._chunk(text)) if text else b""

    def end(self) -> bytes:
        out = sse(self._chunk("", self._reply.answer.finish_reason))
        if self._reply.turn.stream_usage:
            out += sse({**self._chunk(""), "choices": [], "usage": usage(self._reply, self._cached_tokens)})
        return out + b"data: [DONE]\n\n"
