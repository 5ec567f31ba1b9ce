"""The one session model of every trace: sessions of turns, and the tool phase or human wait after each turn.

These classes are also the wire schema of our own format (docs/traces.md): a field's name on disk is given
beside it, and decoding checks types and ranges. They hold counts and durations, never text. They must not
know files, other formats, or what a trace is used for.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

TOKENS_MAX = 100_000_000
SECONDS_MAX = 1e9  # 31 years: longer is a unit mistake

Tokens = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Id = Annotated[str, Meta(min_length=1, max_length=512)]

HUMAN_WAIT = "user_wait"
UNKNOWN_TOOL = "unknown"

PREFIX_RESET_RATIO = 0.98
"""A prompt below this share of the prompt before it is a new prefix (compaction).

Smaller shrinks are recounts and dropped reasoning: in the Codex and mini-SWE-agent traces almost all shrinks
are below 2 %, and there the provider still served 80-99 % of the prompt from its cache; above 2 % it served a
third.
"""


class TraceTool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call, or the whole phase when several ran at once."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    duration_seconds: Seconds = field(name="duration_s")
    command_head: str | None = None
    wall_seconds: Seconds | None = field(name="wall_s", default=None)
    sleep_seconds: Seconds | None = field(name="sleep_s", default=None)
    declared_timeout_seconds: Seconds | None = field(name="declared_timeout_s", default=None)
    background: bool = False
    parallel: Annotated[int, Meta(ge=0)] | None = None
    is_error: bool = False
    duration_is_estimate: bool = field(name="duration_est", default=False)
    duration_is_adjusted: bool = field(name="adjusted", default=False)
    result_chars: Annotated[int, Meta(ge=0)] | None = None

    @property
    def is_human(self) -> bool:
        """A question to the user or a permission prompt: a human decides how long it takes."""
        return self.name == HUMAN_WAIT


class TraceTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model request: its tokens, and what happened before the next one.

    `llm_seconds` and `ttft_seconds` are latencies of whatever served the recording; they say nothing of the
    engine under test. `tool` is the phase that the next turn waited for; `tools` lists its calls when several
    ran at once.
    """

    prompt_tokens: Tokens
    output_tokens: Tokens
    cached_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    llm_seconds: Seconds | None = field(name="llm_s", default=None)
    llm_is_estimate: bool = field(name="llm_est", default=False)
    ttft_seconds: Seconds | None = field(name="ttft_s", default=None)
    stop: str | None = None
    tool: TraceTool | None = None
    tools: tuple[TraceTool, ...] = ()
    user_gap_seconds: Seconds | None = field(name="user_gap_s", default=None)
    output_is_estimate: bool = field(name="output_est", default=False)
    prompt_is_estimate: bool = field(name="prompt_est", default=False)
    prefix_reset: bool = False

    @property
    def tool_seconds(self) -> float:
        """Seconds of the tool phase after this turn; 0 without a tool or when a human was waited for."""
        return self.tool.duration_seconds if self.tool is not None and not self.tool.is_human else 0.0

    @property
    def human_seconds(self) -> float:
        """Seconds a human let the session wait after this turn, uncapped."""
        asked = self.tool.duration_seconds if self.tool is not None and self.tool.is_human else 0.0
        return asked + (self.user_gap_seconds or 0.0)


class TraceSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent's conversation. `parent` is the session that spawned it after its turn `parent_turn` (from
    0). Sessions with one `prompt_group` begin with one first prompt: rollouts of one task.
    """

    session_id: Id
    source: str = ""
    licence: str = ""
    agent: str = ""
    model: str = ""
    tokens: str = ""
    start_offset_seconds: float = field(name="start_offset_s", default=0.0)
    parent: Id | None = None
    parent_turn: Annotated[int, Meta(ge=0)] | None = None
    duration_resolution_seconds: Seconds | None = field(name="duration_res_s", default=None)
    tool_tokens: Tokens | None = None
    system_tokens: Tokens | None = None
    prompt_group: Id | None = None
    turns: Annotated[tuple[TraceTurn, ...], Meta(min_length=1)]

    @property
    def shared_prefix_tokens(self) -> int | None:
        """Tokens of tool definitions and system prompt, which sessions of one source share; None if not
        recorded.
        """
        if self.tool_tokens is None and self.system_tokens is None:
            return None
        return (self.tool_tokens or 0) + (self.system_tokens or 0)

    @property
    def peak_prompt_tokens(self) -> int:
        return max(turn.prompt_tokens for turn in self.turns)

    def starts_new_prefix(self, index: int) -> bool:
        """Whether the prompt of turn `index` does not extend the one before it (the first turn, or
        compaction).
        """
        turn = self.turns[index]
        if index == 0 or turn.prefix_reset:
            return True
        return turn.prompt_tokens < PREFIX_RESET_RATIO * self.turns[index - 1].prompt_tokens


def renamed(session: TraceSession, session_id: str) -> TraceSession:
    """The same session under another id."""
    return msgspec.structs.replace(session, session_id=session_id)
