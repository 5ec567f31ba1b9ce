"""Tokens of a text that a trace holds, by a fixed rule, so that the text itself can be dropped at once.

Four characters count as one token, as for prose and code in English. Pure; it must not know formats.
"""

import msgspec

CHARS_PER_TOKEN = 4
NESTING_MAX = 50


def json_text_tokens(raw: msgspec.Raw) -> int:
    """Tokens of all strings in a JSON value, keys excluded; raises ValueError if it is not JSON."""
    return -(-_chars(msgspec.json.decode(raw), 0) // CHARS_PER_TOKEN)


def _chars(value: object, depth: int) -> int:
    if isinstance(value, str):
        return len(value)
    if depth > NESTING_MAX:
        return 0
    if isinstance(value, list):
        return sum(_chars(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return sum(_chars(item, depth + 1) for item in value.values())
    return 0
