"""Mooncake traces: one request a line with lengths and block ids, with AIPerf's session fields where present.

Two readings of `input_length` exist for the later rows of a session. Mooncake and DynoSim state the whole
prompt; AIPerf states what is added to the history, unless the rows hold whole messages. They are two formats
here, told apart by the block ids (docs/traces.md). Rows without a session are sessions of one turn. It must
not know other formats; texts are counted, never kept.
"""

import msgspec
from msgspec import Struct

from tao.traces.model import SECONDS_MAX, UNKNOWN_TOOL, Tokens, TraceSession, TraceTool, TraceTurn
from tao.traces.readers.prefix import BlockHistory
from tao.traces.readers.raw import ABSENT, is_present
from tao.traces.readers.rows import RowReader
from tao.traces.readers.textlength import json_text_tokens

MILLISECONDS = 1000.0
WHOLE_PROMPT_MODE = "message_array_with_responses"


class MooncakeRow(Struct):
    """`delay` counts from the response before it; times are milliseconds."""

    output_length: Tokens | None = None
    input_length: Tokens | None = None
    timestamp: float | None = None
    created_time: float | None = None
    delay: float | None = None
    delay_ms: float | None = None
    hash_ids: list[int] | None = None
    message_mode: str = "history"
    context_mode: str | None = None
    messages: msgspec.Raw = ABSENT
    text_input: msgspec.Raw = ABSENT
    payload: msgspec.Raw = ABSENT

    def at_seconds(self) -> float | None:
        at = self.timestamp if self.timestamp is not None else self.created_time
        return at / MILLISECONDS if at is not None else None

    def delay_seconds(self) -> float | None:
        delay = self.delay if self.delay is not None else self.delay_ms
        return delay / MILLISECONDS if delay is not None else None


def mooncake_reader() -> RowReader[MooncakeRow]:
    """Every `input_length` is a whole prompt."""
    return RowReader(MooncakeRow, lambda name: MooncakeFold(name, WholePrompts()))


def aiperf_mooncake_reader() -> RowReader[MooncakeRow]:
    """The `input_length` of a later row of a session is what it adds."""
    return RowReader(MooncakeRow, lambda name: MooncakeFold(name, AddedPrompts()))


class WholePrompts:
    """A row states its whole prompt."""

    def prompt_tokens(self, stated: int, before: TraceTurn | None) -> int:  # noqa: ARG002 - the other one needs it
        return stated


class AddedPrompts:
    """A row states what it adds to the prompt and answer before it."""

    def prompt_tokens(self, stated: int, before: TraceTurn | None) -> int:
        return stated if before is None else before.prompt_tokens + before.output_tokens + stated


class MooncakeFold:
    """One session; the wait before a row belongs to the turn before it, as a tool of unknown name."""

    def __init__(self, name: str, lengths: WholePrompts | AddedPrompts) -> None:
        self._name = name
        self._lengths = lengths
        self._turns: list[TraceTurn] = []
        self._blocks = BlockHistory()
        self._started_at = 0.0
        self._last_at: float | None = None

    def add(self, row: MooncakeRow) -> None:
        if row.output_length is None:
            raise ValueError("output_length is missing")
        before = self._turns[-1] if self._turns else None
        stated, estimated, whole = _stated_tokens(row)
        prompt_tokens = stated if whole else self._lengths.prompt_tokens(stated, before)
        cached_tokens, reset = self._blocks.step(row.hash_ids or (), prompt_tokens)
        at = row.at_seconds()
        if before is None:
            self._started_at = at or 0.0
        else:
            self._turns[-1] = self._with_wait(before, row, at)
        self._last_at = at
        self._turns.append(
            TraceTurn(
                prompt_tokens=prompt_tokens,
                output_tokens=row.output_length,
                cached_tokens=cached_tokens if row.hash_ids else None,
                prompt_is_estimate=estimated,
                prefix_reset=reset,
            )
        )

    def session(self) -> TraceSession | None:
        if not self._turns:
            return None
        return TraceSession(
            session_id=self._name,
            tokens="measured",
            start_offset_seconds=self._started_at,
            turns=tuple(self._turns),
        )

    def _with_wait(self, before: TraceTurn, row: MooncakeRow, at: float | None) -> TraceTurn:
        wait, estimated = row.delay_seconds(), False
        if wait is None:
            # Only arrival times are known: their distance also holds the answer's time, so it is an upper
            # bound.
            wait = at - self._last_at if at is not None and self._last_at is not None else 0.0
            estimated = True
        if not 0 <= wait <= SECONDS_MAX:
            raise ValueError(f"the wait before this row is {wait:g} s; rows of a session must be in order")
        tool = TraceTool(name=UNKNOWN_TOOL, duration_seconds=wait, duration_is_estimate=estimated)
        return msgspec.structs.replace(before, tool=tool)


def _stated_tokens(row: MooncakeRow) -> tuple[int, bool, bool]:
    """(tokens, whether estimated from characters, whether they are the whole prompt whatever the format
    says).
    """
    if row.input_length is not None:
        return row.input_length, False, row.context_mode == WHOLE_PROMPT_MODE
    if is_present(row.payload):
        return json_text_tokens(row.payload), True, True
    if is_present(row.messages):
        return json_text_tokens(row.messages), True, row.message_mode != "delta"
    if is_present(row.text_input):
        return json_text_tokens(row.text_input), True, False
    raise ValueError("input_length is missing, and there are no messages, text_input or payload")
