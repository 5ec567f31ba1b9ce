"""What an engine's answer told, gathered while it streams.

`ResponseFacts` is the result; `FactsBuilder` is the bounded accumulator that the dialect readers fill. Counts
of prompt tokens include cached ones in every dialect. It must not know SSE, JSON documents or sessions.
"""

from dataclasses import dataclass, field

import msgspec

from tao.gateway.wire.toolcalls import ToolCall, ToolObservation, fenced_tool, observe_tools

ARGUMENT_CHARS_MAX = 65_536
TOOL_CALLS_MAX = 64
TEXT_CHARS_MAX = 65_536
ERROR_CHARS_MAX = 512
ID_CHARS_MAX = 256
COUNT_TOKENS_MAX = 1 << 24
"""No context is as long: a larger count would book away a replica of any size."""


class Usage(msgspec.Struct, frozen=True):
    """Token counts the engine reported. `prompt_tokens` includes `cached_tokens` (None = not reported)."""

    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int


class ResponseFacts(msgspec.Struct, frozen=True):
    """Everything observed in one answer.

    `output_deltas` counts the stream's pieces of output and `output_chars` their size: the basis of a token
    estimate where `usage` is None. `complete` is true where the answer said that it ended. `finish_reason` is
    the dialect's own word.
    """

    usage: Usage | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    response_id: str | None = None
    error: str | None = None
    complete: bool = False
    output_deltas: int = 0
    output_chars: int = 0
    text: str = ""

    def tools(self, *, tools_declared: bool) -> tuple[ToolObservation, ...]:
        """The tools that run next: the calls asked for, or a text agent's fenced block where none were
        declared.
        """
        if self.tool_calls:
            return observe_tools(self.tool_calls)
        fenced = None if tools_declared else fenced_tool(self.text)
        return () if fenced is None else (fenced,)


@dataclass(slots=True)
class _PartialCall:
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    chars: int = 0
    truncated: bool = False

    def append(self, piece: str) -> None:
        room = ARGUMENT_CHARS_MAX - self.chars
        self.truncated = self.truncated or len(piece) > room
        if room > 0 and piece:
            self.pieces.append(piece[:room])
            self.chars += min(len(piece), room)


class FactsBuilder:
    """Mutable gathering of `ResponseFacts`, bounded in every direction."""

    __slots__ = (
        "_cached_tokens",
        "_calls",
        "_output_tokens",
        "_prompt_tokens",
        "_text",
        "_text_room",
        "complete",
        "error",
        "finish_reason",
        "output_chars",
        "output_deltas",
        "response_id",
    )

    def __init__(self) -> None:
        self._prompt_tokens: int | None = None
        self._cached_tokens: int | None = None
        self._output_tokens: int | None = None
        self.finish_reason: str | None = None
        self.response_id: str | None = None
        self.error: str | None = None
        self.complete = False
        self.output_deltas = 0
        self.output_chars = 0
        self._calls: dict[tuple[int, int], _PartialCall] = {}
        self._text: list[str] = []
        self._text_room = TEXT_CHARS_MAX

    def identified(self, response_id: str | None) -> None:
        """Note the answer's id; the first one counts."""
        if response_id and self.response_id is None and len(response_id) <= ID_CHARS_MAX:
            self.response_id = response_id

    def finished(self, reason: str | None) -> None:
        """Note why generation stopped."""
        if reason:
            self.finish_reason = reason[:ID_CHARS_MAX]

    def failed(self, message: str) -> None:
        """Note an error; the first one counts."""
        if self.error is None:
            self.error = message[:ERROR_CHARS_MAX] or "unnamed error"

    def add_text(self, piece: object) -> None:
        """Visible output text of any kind; kept up to a bound, for fenced blocks."""
        if not isinstance(piece, str) or not piece:
            return
        self.add_texts(piece, 1)

    def add_texts(self, joined: str, pieces: int) -> None:
        """So many pieces of visible text, joined."""
        size = len(joined)
        self.output_deltas += pieces
        self.output_chars += size
        if self._text_room > 0:
            self._text.append(joined if size <= self._text_room else joined[: self._text_room])
            self._text_room -= size

    def add_hidden(self, piece: object) -> None:
        """Output that is no visible text (reasoning): counted, not kept."""
        if isinstance(piece, str) and piece:
            self._count(piece)

    def begin_call(self, key: tuple[int, int], call_id: str | None, name: str | None) -> None:
        """Open the tool call at `key`, or add to what is known of it."""
        call = self._call(key)
        if call is not None:
            call.call_id = call.call_id or (call_id or "")[:ID_CHARS_MAX]
            call.name = call.name or (name or "")[:ID_CHARS_MAX]

    def add_arguments(self, key: tuple[int, int], piece: object) -> None:
        """A piece of the JSON arguments of the call at `key`."""
        if not isinstance(piece, str) or not piece:
            return
        self._count(piece)
        call = self._call(key)
        if call is not None:
            call.append(piece)

    def replace_arguments(self, key: tuple[int, int], arguments: str) -> None:
        """The whole arguments of the call at `key`, in place of the pieces seen so far."""
        call = self._call(key)
        if call is not None:
            call.pieces, call.chars, call.truncated = [], 0, False
            call.append(arguments)

    def report_usage(self, prompt: int | None, cached: int | None, output: int | None) -> None:
        """Merge a usage report; counts only ever grow over a stream, so the larger one is the later one.

        What no context can have is not told: a prompt of nothing, more than `COUNT_TOKENS_MAX`.
        """
        self._prompt_tokens = _larger(self._prompt_tokens, prompt)
        self._cached_tokens = _larger(self._cached_tokens, cached)
        self._output_tokens = _larger(self._output_tokens, output)

    @property
    def usage(self) -> Usage | None:
        """The counts, where that of the prompt is among them: without it the others say nothing of the context."""
        prompt, cached = self._prompt_tokens, self._cached_tokens
        if not prompt:
            return None
        return Usage(prompt, None if cached is None else min(cached, prompt), self._output_tokens or 0)

    def facts(self) -> ResponseFacts:
        """What is known now."""
        calls = (
            ToolCall(call.call_id, call.name, "".join(call.pieces), call.truncated)
            for call in self._calls.values()
            if call.name
        )
        return ResponseFacts(
            usage=self.usage,
            tool_calls=tuple(calls),
            finish_reason=self.finish_reason,
            response_id=self.response_id,
            error=self.error,
            complete=self.complete,
            output_deltas=self.output_deltas,
            output_chars=self.output_chars,
            text="".join(self._text),
        )

    def _count(self, piece: str) -> None:
        self.output_deltas += 1
        self.output_chars += len(piece)

    def _call(self, key: tuple[int, int]) -> _PartialCall | None:
        call = self._calls.get(key)
        if call is None and len(self._calls) < TOOL_CALLS_MAX:
            call = self._calls[key] = _PartialCall()
        return call


def _larger(known: int | None, told: int | None) -> int | None:
    if told is None or told > COUNT_TOKENS_MAX:
        return known
    return told if known is None else max(known, told)
