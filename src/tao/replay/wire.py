"""The parts of OpenAI's wire format that a replay reads. Everything else in a message is ignored.

Lenient where servers differ (null for empty), strict on types. It must not know HTTP.
"""

from msgspec import Struct, field


class PromptDetails(Struct, frozen=True):
    cached_tokens: int | None = None


class Usage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        return None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens


class Delta(Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[object] | None = None


class Choice(Struct, frozen=True):
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> Delta | None:
        return self.delta or self.message

    @property
    def text(self) -> str:
        return (self.said.content or "") if self.said is not None else ""

    @property
    def has_token(self) -> bool:
        said = self.said
        return said is not None and bool(
            said.content or said.reasoning_content or said.reasoning or said.tool_calls
        )


class Chunk(Struct, frozen=True):
    """One event of a stream, or the whole answer of a server that does not stream."""

    choices: list[Choice] = field(default_factory=list)
    usage: Usage | None = None
    error: object = None


class ModelCard(Struct, frozen=True):
    id: str


class ModelList(Struct, frozen=True):
    data: list[ModelCard] = field(default_factory=list)


class Tokenized(Struct, frozen=True):
    count: int
