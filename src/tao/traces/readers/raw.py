"""JSON values that are looked at later or not at all: present, absent, or an object.

msgspec decodes no `Raw | None`; an absent value is an empty Raw. It must not know a format.
"""

from msgspec import Raw

ABSENT = Raw()


def is_present(raw: Raw) -> bool:
    """Whether a value was there and was not null."""
    return bytes(memoryview(raw)[:4]) not in (b"", b"null")


def is_object(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"
