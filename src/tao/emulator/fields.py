"""Typed access to the fields of a JSON body, with errors that name the field, and the error a dialect turns
into bytes.

It must not know what the fields mean.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

JsonObject = dict[str, Any]


class BadRequestError(Exception):
    """The request is wrong: `status` 400, 404 or 413; the text says what to change."""

    def __init__(self, message: str, *, status: int = 400, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.field = field


def parse_object(data: bytes) -> JsonObject:
    """A JSON object from bytes, or BadRequestError."""
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError(f"the body must be a JSON object, got {kind(body)}")
    return body


def kind(value: Any) -> str:
    """JSON's name of a value's type."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def optional(body: JsonObject, field: str, expected: type[T]) -> T | None:
    """A field of a type, None where it is absent or null; BadRequestError where it is something else."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}
        raise BadRequestError(f"'{field}' must be {names[expected]}, got {kind(value)}", field=field)
    return value


def required(body: JsonObject, field: str, expected: type[T]) -> T:
    value = optional(body, field, expected)
    if value is None:
        raise BadRequestError(f"'{field}' is required", field=field)
    return value


def positive(body: JsonObject, *names: str) -> int | None:
    """The first given of several spellings of a count >= 1."""
    for name in names:
        value = optional(body, name, int)
        if value is not None:
            if value < 1:
                raise BadRequestError(f"'{name}' must be at least 1, got {value}", field=name)
            return value
    return None


def objects(items: list[Any], field: str) -> list[JsonObject]:
    """The same list, known to hold objects only."""
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadRequestError(f"'{field}[{index}]' must be an object, got {kind(item)}", field=field)
    return items
