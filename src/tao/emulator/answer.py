"""Answers: their parts, their tokens, and a cursor that turns "n tokens generated" into what to send.

An answer is known in full when its request is submitted; the engine model decides when each token is there.
It must not know dialects or time.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from tao.emulator.conversation import Image, Part, Text, ToolCall, call_bytes, part_segments
from tao.emulator.tokens import BYTES_PER_TOKEN, pieces, token_count
from tao.enginemodel import Segment

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]

_WORDS = (
    "the and let see now run test file code line path ok so we can fix it is in that with this for what when then "
    "read call list main tree node data step next more less one two few add set get put try not yet all any each"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: `tokens` >= 1 in `segments`, cut to the request's limit."""

    parts: tuple[Part, ...]
    tokens: int
    segments: tuple[Segment, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class TextDelta:
    part: int
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call, whole, once its last token is there."""

    part: int
    call: ToolCall


Delta: TypeAlias = TextDelta | CallDelta


def compose(parts: Iterable[Part], tokens_max: int) -> Answer:
    """An answer from parts, cut to `tokens_max` tokens (>= 1); one that says nothing gets a single space."""
    kept: list[Part] = []
    segments: list[Segment] = []
    left = tokens_max
    for part in tuple(part for part in parts if not isinstance(part, Text) or part.text) or (Text(" "),):
        found = part_segments(part)
        tokens = sum(length for _, length in found)
        if tokens > left:
            if left:
                cut = _first_text(part, left)
                kept += [Text(cut)] if cut else []
                segments += _padded(pieces(cut.encode("utf-8", "surrogatepass")), found, left)
            return Answer(tuple(kept), tokens_max, tuple(segments), "length")
        kept.append(part)
        segments += found
        left -= tokens
    called = any(isinstance(part, ToolCall) for part in kept)
    return Answer(tuple(kept), tokens_max - left, tuple(segments), "tool_calls" if called else "stop")


def _first_text(part: Part, tokens: int) -> str:
    """The first tokens of a text; a tool call that is cut off says nothing."""
    if not isinstance(part, Text):
        return ""
    return part.text.encode("utf-8", "surrogatepass")[: tokens * BYTES_PER_TOKEN].decode(errors="ignore")


def _padded(segments: list[Segment], whole: list[Segment], tokens: int) -> list[Segment]:
    """Make up for tokens that the client never sees (half a character, half a tool call)."""
    missing = tokens - sum(length for _, length in segments)
    return [*segments, (("unseen", whole[0][0]), missing)] if missing else segments


def filler(seed: str, tokens: int) -> Text:
    """Text of exactly `tokens` tokens; the same for the same seed."""
    words = Random(seed).choices(_WORDS.split(), k=tokens)  # noqa: S311 - no secret
    return Text(" ".join(words)[: tokens * BYTES_PER_TOKEN].ljust(tokens * BYTES_PER_TOKEN, "."))


def drawn_tokens(seed: str) -> int:
    """Length of an unscripted answer: log-normal with median 160 and mean 220 tokens, at least 8."""
    return max(8, round(Random(seed).lognormvariate(5.075, 0.8)))  # noqa: S311 - no secret


def _part_bytes(part: Part) -> bytes:
    match part:
        case Text(text):
            return text.encode("utf-8", "surrogatepass")
        case ToolCall():
            return call_bytes(part)
        case Image():
            return b""  # answers have no images


class AnswerCursor:
    """Walks through an answer as its tokens are generated."""

    def __init__(self, answer: Answer) -> None:
        self._spans: list[tuple[int, int, Part, bytes]] = []  # (part, end token, part, bytes)
        self._position = 0  # tokens sent
        self._span = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        end = 0
        for number, part in enumerate(answer.parts):
            data = _part_bytes(part)
            end += token_count(data)
            self._spans.append((number, end, part, data))

    def upto(self, tokens: int) -> list[Delta]:
        """What became visible with the first `tokens` tokens since the last call."""
        deltas: list[Delta] = []
        while self._position < tokens and self._span < len(self._spans):
            number, end, part, data = self._spans[self._span]
            reach = min(tokens, end)
            if isinstance(part, ToolCall):
                if reach == end:
                    deltas.append(CallDelta(number, part))
            else:
                begin = end - token_count(data)
                piece = data[(self._position - begin) * BYTES_PER_TOKEN : (reach - begin) * BYTES_PER_TOKEN]
                text = self._decoder.decode(piece, final=reach == end)
                if text:
                    deltas.append(TextDelta(number, text))
            self._position = reach
            if reach == end:
                self._span += 1
        return deltas
