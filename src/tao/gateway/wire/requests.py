"""The facts of a request that scheduling needs, read once from its bytes.

The body is never written again: what goes to the engine is what the client sent. Shape is checked only where
a wrong one would mislead TAO; everything else is the engine's to judge. It must not know sessions or
policies.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tao.gateway.wire import lenient
from tao.gateway.wire.dialects import Dialect, dialect_of
from tao.gateway.wire.encodings import decode_body
from tao.gateway.wire.headers import Headers, RawHeaders
from tao.gateway.wire.lenient import JsonObject

_MAX_TOKENS_KEYS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "max_tokens_to_sample")
_CONVERSATION_KEY = {
    Dialect.OPENAI_CHAT: "messages",
    Dialect.ANTHROPIC_MESSAGES: "messages",
    Dialect.ANTHROPIC_COUNT_TOKENS: "messages",
    Dialect.OPENAI_RESPONSES: "input",
    Dialect.OPENAI_COMPLETIONS: "prompt",
}


class MalformedRequestError(ValueError):
    """The request cannot be read; the message names what is wrong and goes to the client (400)."""


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request as TAO sees it.

    `body` is the decoded JSON object, empty for pass-through requests and for bodies in a content coding that
    TAO cannot read (`opaque`). `conversation` is the messages, input items or prompt, as sent.
    """

    dialect: Dialect
    headers: Headers
    body: JsonObject
    raw: bytes
    model: str | None
    stream: bool
    max_tokens: int | None
    opaque: bool

    @property
    def conversation(self) -> Sequence[Any] | str:
        """Messages (chat, Anthropic), items or text (responses), text or token ids (completions)."""
        value = self.body.get(_CONVERSATION_KEY.get(self.dialect, ""))
        return value if isinstance(value, (list, str)) else []

    @property
    def tools(self) -> list[Any]:
        """The declared tools, as sent; `functions` is OpenAI's older name."""
        return lenient.items(self.body, "tools") or lenient.items(self.body, "functions")

    @property
    def continues_stored(self) -> bool:
        """Whether the engine has the conversation and the request carries only what is new."""
        return lenient.text(self.body, "previous_response_id") is not None

    @property
    def wants_usage(self) -> bool:
        """True where the answer will carry usage: always, except OpenAI streams that did not ask for it."""
        if not self.stream or self.dialect in {Dialect.OPENAI_RESPONSES, Dialect.ANTHROPIC_MESSAGES}:
            return True
        return lenient.child(self.body, "stream_options").get("include_usage") is True


def parse_request(method: str, path: str, headers: RawHeaders, body: bytes) -> ParsedRequest:
    """Read a request; `path` comes without its query. Raises `MalformedRequestError`."""
    dialect = dialect_of(method, path)
    fields = Headers(headers)
    if dialect is Dialect.PASS_THROUGH:
        return ParsedRequest(dialect, fields, {}, body, None, False, None, opaque=True)
    coding = fields.get("content-encoding")
    plain = decode_body(body, coding) if coding else body
    if plain is None:
        return ParsedRequest(
            dialect, fields, {}, body, None, "event-stream" in fields.get("accept"), None, True
        )
    document = _document(plain)
    _check_shape(dialect, document)
    limits = (lenient.count(document, key) for key in _MAX_TOKENS_KEYS if key in document)
    return ParsedRequest(
        dialect=dialect,
        headers=fields,
        body=document,
        raw=plain,
        model=lenient.text(document, "model"),
        stream=document.get("stream") is True,
        max_tokens=next((limit for limit in limits if limit is not None), None),
        opaque=False,
    )


def _document(plain: bytes) -> JsonObject:
    if not plain.strip():
        raise MalformedRequestError("the request body is empty; send a JSON object")
    try:
        return lenient.decode_object(plain)
    except lenient.NotAnObjectError as error:
        raise MalformedRequestError(f"the request body cannot be read: {error}") from None


def _check_shape(dialect: Dialect, document: JsonObject) -> None:
    model = document.get("model")
    if model is not None and not isinstance(model, str):
        raise MalformedRequestError(f"'model' must be a string, got {lenient.json_type(model)}")
    stream = document.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise MalformedRequestError(f"'stream' must be true or false, got {lenient.json_type(stream)}")
    key = _CONVERSATION_KEY[dialect]
    value = document.get(key)
    if dialect in {Dialect.OPENAI_COMPLETIONS, Dialect.OPENAI_RESPONSES}:
        if value is not None and not isinstance(value, (str, list)):
            found = lenient.json_type(value)
            raise MalformedRequestError(f"'{key}' must be a string or an array, got {found}")
        return
    if not isinstance(value, list):
        found = "nothing" if key not in document else lenient.json_type(value)
        raise MalformedRequestError(f"'{key}' must be an array of messages, got {found}")
    for position, message in enumerate(value):
        if not isinstance(message, dict):
            found = lenient.json_type(message)
            raise MalformedRequestError(f"'{key}[{position}]' must be an object, got {found}")
