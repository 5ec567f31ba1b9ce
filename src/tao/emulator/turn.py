"""One request after parsing, in one form for all dialects, and what a dialect must be able to do.

It must not know HTTP or the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tao.emulator.answer import Answer, Delta
from tao.emulator.conversation import Conversation
from tao.emulator.fields import BadRequestError, JsonObject
from tao.enginemodel import Chain


@dataclass(frozen=True, slots=True)
class Turn:
    """A parsed request. `output_tokens_max` None: up to the model's window."""

    model: str | None
    prompt: Chain
    conversation: Conversation
    stream: bool
    stream_usage: bool
    output_tokens_max: int | None
    output_tokens_min: int
    ignore_eos: bool
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a dialect writes about: ids and names that do not change during a response."""

    id: str
    model: str
    created: int
    turn: Turn
    answer: Answer


class StreamWriter(Protocol):
    """Turns one response into server-sent events; each method returns bytes, possibly none."""

    def begin(self, cached_tokens: int) -> bytes:
        """Called once, when the prompt is computed."""

    def deltas(self, deltas: list[Delta]) -> bytes: ...

    def end(self) -> bytes: ...


class Dialect(Protocol):
    """One endpoint: parse a body, write a response."""

    id_prefix: str

    def parse(self, body: JsonObject) -> Turn: ...

    def whole(self, reply: Reply, cached_tokens: int) -> JsonObject: ...

    def stream(self, reply: Reply) -> StreamWriter: ...

    def error(self, error: BadRequestError) -> JsonObject: ...


def session_id(body: JsonObject) -> str | None:
    """The id that vLLM echoes in its KV events, when the body carries one."""
    extra = body.get("vllm_xargs")
    found = body.get("session_id") or (extra.get("session_id") if isinstance(extra, dict) else None)
    return found if isinstance(found, str) else None


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    encoded = msgspec.json.encode(data)
    if event is None:
        return b"data: " + encoded + b"\n\n"
    return b"event: " + event.encode() + b"\ndata: " + encoded + b"\n\n"


def argument_chunks(arguments: str, characters: int = 24) -> Iterator[str]:
    """A tool call's arguments in several deltas, as engines send them."""
    for start in range(0, len(arguments), characters):
        yield arguments[start : start + characters]
