"""A conversation in one form for all dialects, and the prompt it is rendered to.

Dialects parse into this; the engine model gets the rendered chain. The same answer returned in a later
prompt renders to the tokens that were generated, whatever the dialect's spelling, so that it is found in
the prefix cache. It must not know HTTP, streaming or the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tao.emulator.tokens import pieces
from tao.enginemodel import Chain, Segment

IMAGE_TOKENS = 512
BILLING_PREFIX = "x-anthropic-billing-header"
END_MARK = b"<|end|>\n"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call by the model; `arguments` is JSON in the spelling of `canonical_json`."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Image:
    """Anything that is not text, by its content; counts IMAGE_TOKENS tokens."""

    content: str


Part: TypeAlias = Text | ToolCall | Image


@dataclass(frozen=True, slots=True)
class Message:
    """`role` is system, instructions, user, assistant or tool."""

    role: str
    parts: tuple[Part, ...]

    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the client offers; `parameters` are the names of its arguments."""

    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tools_text: str = ""

    def turn(self) -> int:
        """Number of the answer that is asked for, from 1."""
        return 1 + sum(message.role == "assistant" for message in self.messages)


def canonical_json(arguments: object) -> str:
    """JSON of a tool call's arguments with sorted keys; text that is no JSON stays as it is."""
    if isinstance(arguments, str):
        try:
            decoded = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return arguments
        return msgspec.json.encode(decoded, order="sorted").decode()
    return msgspec.json.encode(arguments, order="sorted").decode()


def call_bytes(call: ToolCall) -> bytes:
    return f'<tool_call>{{"name": "{call.name}", "arguments": {call.arguments}}}</tool_call>'.encode()


def joined(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Neighbouring assistant messages as one: some dialects spell one answer as several items."""
    result: list[Message] = []
    for message in messages:
        if result and message.role == "assistant" == result[-1].role:
            result[-1] = Message("assistant", result[-1].parts + message.parts)
        else:
            result.append(message)
    return tuple(result)


def part_segments(part: Part) -> list[Segment]:
    match part:
        case Text(text):
            return pieces(text.encode("utf-8", "surrogatepass"))
        case ToolCall():
            return pieces(call_bytes(part))
        case Image(content):
            return [(("image", content), IMAGE_TOKENS)]


def render(conversation: Conversation) -> Chain:
    """The prompt: tools, then each message between a header and an end mark, then the answer's header."""
    segments: list[Segment] = []
    if conversation.tools_text:
        segments += pieces(b"<|tools|>\n")
        segments += pieces(conversation.tools_text.encode("utf-8", "surrogatepass"))
        segments += pieces(END_MARK)
    end = pieces(END_MARK)
    for message in conversation.messages:
        segments += _header(message.role)
        for part in message.parts:
            segments += part_segments(part)
        segments += end
    return Chain.of(segments + _header("assistant"))


def _header(role: str) -> list[Segment]:
    return pieces(f"<|{role}|>\n".encode())
