"""Header fields on their way through: those of one connection stop here, all others pass byte for byte.

Source: RFC 9110, section 7.6.1. It must not know what any other field means.
"""

from collections.abc import Iterable, Sequence

RawHeaders = Sequence[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The body has been read by now: its length is written anew, and its announcement was answered.
_REQUEST_FRAMING = frozenset({b"host", b"content-length", b"expect"})


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """`headers` (lower-case names) without those that concern one connection only."""
    headers = list(headers)
    named = _named_by_connection(headers)
    return [(name, value) for name, value in headers if name not in _HOP_BY_HOP and name not in named]


def request_head(method: str, target: str, host: bytes, headers: RawHeaders, body_bytes: int) -> bytes:
    """The head of a request to an engine. A request that came without a body gets no length."""
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), target.encode("latin-1")), b"host: " + host]
    framed = False
    for name, value in end_to_end((name.lower(), value) for name, value in headers):
        framed = framed or name == b"content-length"
        if name not in _REQUEST_FRAMING:
            lines.append(b"%b: %b" % (name, value))
    if body_bytes or framed or method in {"POST", "PUT", "PATCH"}:
        lines.append(b"content-length: %d" % body_bytes)
    return b"\r\n".join((*lines, b"", b""))


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    names = (value.lower().split(b",") for name, value in headers if name == b"connection")
    return frozenset(token.strip() for tokens in names for token in tokens)
