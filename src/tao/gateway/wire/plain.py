"""The quick way past what a stream is made of: events that bring one piece of visible text and nothing else.

A typed decoder looks for exactly that shape; whatever is not so plain is left to the dialect's reader. It must not
know what else an event may hold.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.facts import FactsBuilder
from tao.gateway.wire.lenient import MALFORMED_JSON

PlainText = Callable[[bytes, FactsBuilder], str | None]
"""Takes a plain event in and returns its text, which may be empty; None, and nothing taken in, for any other event."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]
    id: Any = None
    usage: Any = None
    error: Any = None


class _TextDelta(msgspec.Struct):
    text: str


class _BlockDelta(msgspec.Struct):
    type: str
    delta: _TextDelta


class _OutputDelta(msgspec.Struct):
    type: str
    delta: str


_CHUNK = msgspec.json.Decoder(_Chunk)
_BLOCK_DELTA = msgspec.json.Decoder(_BlockDelta)
_OUTPUT_DELTA = msgspec.json.Decoder(_OutputDelta)


def plain_text_of(dialect: Dialect) -> PlainText:
    """The quick reader of a dialect's streams."""
    return _QUICK.get(dialect, _none)


def _chat(data: bytes, into: FactsBuilder) -> str | None:
    try:
        chunk = _CHUNK.decode(data)
    except MALFORMED_JSON:
        return None
    if len(chunk.choices) != 1 or chunk.usage is not None or chunk.error is not None:
        return None
    choice = chunk.choices[0]
    delta = choice.delta
    if choice.finish_reason is not None or delta.tool_calls is not None or delta.function_call is not None:
        return None
    if delta.content is None or delta.reasoning is not None or delta.reasoning_content is not None:
        return None
    if into.response_id is None and isinstance(chunk.id, str):
        into.identified(chunk.id)
    into.add_text(delta.content)
    return delta.content


def _anthropic(data: bytes, into: FactsBuilder) -> str | None:
    try:
        event = _BLOCK_DELTA.decode(data)
    except MALFORMED_JSON:
        return None
    if event.type != "content_block_delta":
        return None
    into.add_text(event.delta.text)
    return event.delta.text


def _responses(data: bytes, into: FactsBuilder) -> str | None:
    try:
        event = _OUTPUT_DELTA.decode(data)
    except MALFORMED_JSON:
        return None
    if event.type != "response.output_text.delta":
        return None
    into.add_text(event.delta)
    return event.delta


def _none(data: bytes, into: FactsBuilder) -> str | None:  # noqa: ARG001  (the shape of a quick reader)
    return None


_QUICK: dict[Dialect, PlainText] = {
    Dialect.OPENAI_CHAT: _chat,
    Dialect.OPENAI_RESPONSES: _responses,
    Dialect.ANTHROPIC_MESSAGES: _anthropic,
}
