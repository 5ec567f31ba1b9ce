"""The prompt of a request as a chain of digests: what it shares with another prompt can be told without its
text.

The *root* covers what comes before the first exchange (model, tools, leading system or developer messages);
each further message extends a rolling digest. What changes from turn to turn without changing the
conversation is left out first: cache breakpoints, reasoning that clients drop later, the Claude billing line.
A plain-text prompt (completions) is cut into fixed blocks instead, and its remainder kept as a tail. It must
not know sessions.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from tao.gateway.wire import lenient
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.lenient import JsonObject
from tao.gateway.wire.requests import ParsedRequest

DIGEST_BYTES = 8
TEXT_BLOCK_BYTES = 256
BILLING_PREFIX = "x-anthropic-billing-header:"

_ENCODE = msgspec.json.Encoder().encode
_VOLATILE_KEYS = frozenset(
    {
        "cache_control",
        "cachePoint",
        "prompt_cache_breakpoint",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    }
)
_REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
_PLAIN_KEYS = frozenset({"role", "content"})
_LEADING_ROLES = frozenset({"system", "developer"})
_MEDIA_KEYS = frozenset({"data", "url", "image_url", "file_data", "source", "file", "input_audio"})
_INLINE_CHARS_MIN = 256
# Content lists nest once (a tool result within a message); media descriptions twice.
_NESTING_MAX = 3
_PAIRS_MAX = 16
# Shorter exchanges ("ok", "go on") occur in many conversations and identify none.
_PAIR_BYTES_MIN = 160


class PromptChain(msgspec.Struct, frozen=True):
    """A prompt as digests.

    `digests[i]` covers messages 0..i (without the root); another process has others for the same messages.
    `sizes[i]` is the text bytes up to and with message i, root included. `replied` is the number of messages
    up to the first one that the model wrote (0 = none).
    `text` is a whole text prompt (empty for messages), whose remainder after the last block is the `tail`.
    `call_ids` are the tool calls of the last assistant message;
    `pairs` are digests of the model's latest messages, each with what followed it, newest last.
    """

    root: bytes
    root_bytes: int
    has_tools: bool
    digests: tuple[bytes, ...]
    sizes: tuple[int, ...]
    replied: int
    text: bytes
    call_ids: tuple[str, ...]
    pairs: tuple[bytes, ...]
    billing_line: bool

    @property
    def text_bytes(self) -> int:
        """The size of the whole prompt in bytes of JSON text, images left out: the basis of token estimates."""
        return (self.sizes[-1] if self.sizes else self.root_bytes) + len(self.tail)

    @property
    def tail(self) -> bytes:
        """What a text prompt has after its last whole block."""
        return self.text[len(self.digests) * TEXT_BLOCK_BYTES :] if self.text else b""


def prompt_chain(request: ParsedRequest) -> PromptChain | None:
    """The chain of a request's prompt; None where the body could not be read."""
    if request.opaque:
        return None
    try:
        return _chain(request)
    except (RecursionError, OverflowError, UnicodeError):
        # Readable as JSON, yet beyond what can be written again: nesting, integers past 64 bits, lone
        # surrogates.
        return None


def _chain(request: ParsedRequest) -> PromptChain:
    conversation = request.conversation
    if isinstance(conversation, str):
        return _text_chain(request, conversation.encode("utf-8", "replace"))
    if request.dialect is Dialect.OPENAI_COMPLETIONS:
        # Several prompts, or token ids: their JSON text is cut like a text prompt.
        return _text_chain(request, _ENCODE(conversation))
    leading, messages = _split_leading(conversation)
    return _message_chain(request, leading, messages)


def digest(*parts: bytes) -> bytes:
    """A short digest of `parts` joined; collisions only confuse sessions of one tenant."""
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _message_chain(request: ParsedRequest, leading: Sequence[Any], messages: Sequence[Any]) -> PromptChain:
    root, root_bytes, billing = _root(request, leading)
    rolling, size, replied = b"", root_bytes, 0
    digests: list[bytes] = []
    sizes: list[int] = []
    pairs: list[tuple[bytes, bytes]] = []
    spoken: tuple[bytes, int] | None = None
    for message in messages:
        canonical, media_bytes = _canonical(message)
        if canonical is None:
            continue
        # Keyed SipHash, four times as fast as a cryptographic digest: nearly all bytes of a long prompt go through here.
        own = hash(canonical).to_bytes(DIGEST_BYTES, "little", signed=True)
        rolling = blake2b(rolling + own, digest_size=DIGEST_BYTES).digest()
        size += len(canonical) - media_bytes
        digests.append(rolling)
        sizes.append(size)
        if spoken is not None and spoken[1] + len(canonical) >= _PAIR_BYTES_MIN:
            pairs.append((spoken[0], own))
        by_model = _by_model(message)
        spoken = (own, len(canonical)) if by_model else None
        replied = replied or (len(digests) if by_model else 0)
    return PromptChain(
        root=root,
        root_bytes=root_bytes,
        has_tools=bool(request.tools),
        digests=tuple(digests),
        sizes=tuple(sizes),
        replied=replied,
        text=b"",
        call_ids=_last_call_ids(messages),
        pairs=tuple(digest(*pair) for pair in pairs[-_PAIRS_MAX:]),
        billing_line=billing,
    )


def _text_chain(request: ParsedRequest, prompt: bytes) -> PromptChain:
    root, root_bytes, billing = _root(request, ())
    rolling = b""
    digests: list[bytes] = []
    whole = len(prompt) - len(prompt) % TEXT_BLOCK_BYTES
    for start in range(0, whole, TEXT_BLOCK_BYTES):
        rolling = digest(rolling, prompt[start : start + TEXT_BLOCK_BYTES])
        digests.append(rolling)
    sizes = range(root_bytes + TEXT_BLOCK_BYTES, root_bytes + whole + 1, TEXT_BLOCK_BYTES)
    return PromptChain(
        root, root_bytes, bool(request.tools), tuple(digests), tuple(sizes), 0, prompt, (), (), billing
    )


def _root(request: ParsedRequest, leading: Sequence[Any]) -> tuple[bytes, int, bool]:
    """Digest and size of what precedes the first exchange, and whether a billing line was left out."""
    system = request.body.get("system")
    before = [*request.tools, *(system if isinstance(system, list) else [system])]
    before += [request.body.get("instructions"), *leading]
    given = [item for item in before if item is not None]
    model = (request.model or "").encode("utf-8", "replace")
    if not given:
        return digest(model, b"\0"), 0, False
    parts = [part for item in given if (part := _canonical(item)[0]) is not None]
    billing = any(_is_billing(item) or _is_billing(lenient.first_text(item)) for item in given)
    return digest(model, b"\0", *parts), sum(map(len, parts)), billing


def _split_leading(conversation: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    index = 0
    while index < len(conversation):
        message = conversation[index]
        if not isinstance(message, dict) or lenient.text(message, "role") not in _LEADING_ROLES:
            break
        index += 1
    return conversation[:index], conversation[index:]


def _canonical(message: Any) -> tuple[bytes | None, int]:
    """`message` as bytes that stay the same from turn to turn, and how many of them are inline media.

    None where nothing of it stays (a reasoning item).
    """
    if isinstance(message, str):
        return _ENCODE(_without_billing(message)), 0
    if not isinstance(message, dict):
        return _ENCODE(message), 0
    if message.keys() == _PLAIN_KEYS and isinstance(message["content"], str):
        text = message["content"]
        return _ENCODE(
            message if not _is_billing(text) else {**message, "content": _without_billing(text)}
        ), 0
    stable = _stable(message)
    if stable is None:
        return None, 0
    content = stable.get("content")
    if not isinstance(content, list):
        return _ENCODE(stable), 0
    # Clients turn `"text"` into `[{"type": "text", "text": "text"}]` where they set a cache breakpoint.
    if len(content) == 1 and isinstance(content[0], dict) and content[0].keys() == {"type", "text"}:
        stable = {**stable, "content": content[0]["text"]}
    return _ENCODE(stable), _inline_bytes(content)


def _stable(value: JsonObject, nesting: int = 0) -> JsonObject | None:
    """`value` without what is volatile in it and in its content blocks; None where it is volatile itself."""
    if lenient.text(value, "type") in _REASONING_TYPES or _is_billing(value.get("text")):
        return None
    if not _VOLATILE_KEYS.isdisjoint(value):
        value = {key: inner for key, inner in value.items() if key not in _VOLATILE_KEYS}
        if not value:
            return None
    content = value.get("content")
    if isinstance(content, list) and nesting < _NESTING_MAX:
        kept = [_stable(block, nesting + 1) if isinstance(block, dict) else block for block in content]
        if any(new is not old for new, old in zip(kept, content, strict=True)):
            value = {**value, "content": [block for block in kept if block is not None]}
    elif _is_billing(content):
        value = {**value, "content": _without_billing(str(content))}
    return value


def _is_billing(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(BILLING_PREFIX)


def _without_billing(text: str) -> str:
    if not _is_billing(text):
        return text
    return "\n".join(line for line in text.split("\n") if not line.startswith(BILLING_PREFIX))


def _inline_bytes(blocks: Sequence[Any], nesting: int = 0) -> int:
    """The bytes of base64 media in content blocks: they say nothing about tokens."""
    total = 0
    for block in blocks:
        if not isinstance(block, dict) or nesting > _NESTING_MAX:
            continue
        inner = block.get("content")
        if isinstance(inner, list):
            total += _inline_bytes(inner, nesting + 1)
        for key in _MEDIA_KEYS & block.keys():
            value = block[key]
            if isinstance(value, dict):
                total += _inline_bytes((value,), nesting + 1)
            elif isinstance(value, str) and len(value) >= _INLINE_CHARS_MIN:
                inline = (
                    block.get("type") == "base64" or key in {"file_data", "data"} or ";base64," in value[:128]
                )
                total += len(value) if inline else 0
    return total


def _by_model(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") == "assistant" or lenient.text(message, "type") in {
        "function_call",
        "custom_tool_call",
    }


def _last_call_ids(messages: Sequence[Any]) -> tuple[str, ...]:
    """The ids of the tool calls the model made last, in any dialect."""
    found: list[str] = []
    for message in reversed(messages[-64:]):
        ids = _call_ids(message) if isinstance(message, dict) else []
        if ids:
            found.extend(ids)
        elif found:
            break
    return tuple(found[:16])


def _call_ids(message: JsonObject) -> list[str]:
    if lenient.text(message, "type") in {"function_call", "custom_tool_call", "local_shell_call"}:
        own = lenient.text(message, "call_id")
        return [own] if own else []
    if message.get("role") != "assistant":
        return []
    uses = [block for block in lenient.objects(message, "content") if block.get("type") == "tool_use"]
    named = (lenient.text(call, "id") for call in (*lenient.objects(message, "tool_calls"), *uses))
    return [call_id for call_id in named if call_id]
