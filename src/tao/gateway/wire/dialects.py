"""The wire dialects and which requests speak them.

A dialect is decided by method and path alone. Everything under `/v1/` that is not listed passes through
unobserved. This file must not know bodies, sessions or HTTP objects.
"""

from enum import StrEnum


class Dialect(StrEnum):
    """How a request is written, and so how its answer, its errors and its keep-alives are written."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_COMPLETIONS = "openai-completions"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC_MESSAGES = "anthropic-messages"
    ANTHROPIC_COUNT_TOKENS = "anthropic-count-tokens"
    PASS_THROUGH = "pass-through"  # noqa: S105  (no password)

    @property
    def generates(self) -> bool:
        """True where a request is a turn: the engine decodes tokens for it."""
        return self not in {Dialect.ANTHROPIC_COUNT_TOKENS, Dialect.PASS_THROUGH}

    @property
    def anthropic(self) -> bool:
        """True where errors and keep-alives have Anthropic's form."""
        return self in {Dialect.ANTHROPIC_MESSAGES, Dialect.ANTHROPIC_COUNT_TOKENS}


_BY_PATH = {
    "/v1/chat/completions": Dialect.OPENAI_CHAT,
    "/v1/completions": Dialect.OPENAI_COMPLETIONS,
    "/v1/responses": Dialect.OPENAI_RESPONSES,
    "/v1/messages": Dialect.ANTHROPIC_MESSAGES,
    "/v1/messages/count_tokens": Dialect.ANTHROPIC_COUNT_TOKENS,
}


def dialect_of(method: str, path: str) -> Dialect:
    """The dialect of a request; `path` comes without its query."""
    if method != "POST":
        return Dialect.PASS_THROUGH
    return _BY_PATH.get(path.rstrip("/") if len(path) > 1 else path, Dialect.PASS_THROUGH)
