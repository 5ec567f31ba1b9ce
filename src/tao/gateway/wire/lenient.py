"""Reading foreign JSON without trusting it.

Everything a client or an engine sends is decoded here and picked apart with accessors that answer "absent"
for a value of the wrong type. Nothing in this file raises on any input, apart from `decode_object`, whose
error says what is wrong with the document. It must not know dialects, sessions or HTTP.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

JsonObject = Mapping[str, Any]

MALFORMED_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `msgspec.json` raises on bytes that are no JSON of the kind asked for: ill-formed; in older versions, not UTF-8;
nested too deeply.
"""

_EMPTY: JsonObject = {}
_DECODER = msgspec.json.Decoder()


class NotAnObjectError(ValueError):
    """The bytes are not one JSON object; the message says why."""


def decode_object(data: bytes | bytearray | memoryview) -> JsonObject:
    """The JSON object that `data` holds; `NotAnObjectError` when it is something else or malformed."""
    try:
        value = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise NotAnObjectError(f"malformed JSON: {error}") from None
    except UnicodeDecodeError:
        raise NotAnObjectError("malformed JSON: not valid UTF-8") from None
    except RecursionError:
        raise NotAnObjectError("malformed JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise NotAnObjectError(f"expected a JSON object, got {json_type(value)}")
    return value


def object_or_none(data: bytes | bytearray | memoryview) -> JsonObject | None:
    """Like `decode_object`, with None for anything that is not one JSON object."""
    try:
        value = _DECODER.decode(data)
    except MALFORMED_JSON:
        return None
    return value if isinstance(value, dict) else None


def json_type(value: object) -> str:
    """The JSON name of a decoded value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def child(value: JsonObject, key: str) -> JsonObject:
    """`value[key]` when it is an object, else an empty object."""
    inner = value.get(key)
    return inner if isinstance(inner, dict) else _EMPTY


def items(value: JsonObject, key: str) -> list[Any]:
    """`value[key]` when it is an array, else an empty list."""
    inner = value.get(key)
    return inner if isinstance(inner, list) else []


def objects(value: JsonObject, key: str) -> list[JsonObject]:
    """The objects within the array `value[key]`."""
    return [item for item in items(value, key) if isinstance(item, dict)]


def text(value: JsonObject, key: str) -> str | None:
    """`value[key]` when it is a non-empty string."""
    inner = value.get(key)
    return inner if isinstance(inner, str) and inner else None


def first_text(value: object) -> str | None:
    """The text of a message or content block: its `text`, its `content`, or the first block's text."""
    if not isinstance(value, dict):
        return None
    blocks = objects(value, "content")
    return text(value, "text") or text(value, "content") or (text(blocks[0], "text") if blocks else None)


def count(value: JsonObject, key: str) -> int | None:
    """`value[key]` when it is a whole number in [0, 2**53]."""
    inner = value.get(key)
    if isinstance(inner, bool) or not isinstance(inner, (int, float)):
        return None
    if isinstance(inner, float) and not inner.is_integer():
        return None
    return int(inner) if 0 <= inner <= 2**53 else None


def number(value: JsonObject, key: str) -> float | None:
    """`value[key]` when it is a finite number."""
    inner = value.get(key)
    if isinstance(inner, bool) or not isinstance(inner, (int, float)):
        return None
    try:
        result = float(inner)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None
