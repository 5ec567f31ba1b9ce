"""Headers that concern one connection only, and those a proxy has to set anew. Everything else passes unchanged."""

from collections.abc import Iterable

from tao.gateway.exchange import RawHeaders

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


def end_to_end(headers: Iterable[tuple[bytes, bytes]], but: frozenset[bytes] = frozenset()) -> RawHeaders:
    """The headers that are for the other end, in order; those that `Connection` names are not."""
    pairs = list(headers)
    named: set[bytes] = set()
    for name, value in pairs:
        if name.lower() == b"connection":
            named |= {token.strip().lower() for token in value.split(b",")}
    return tuple(
        (name, value)
        for name, value in pairs
        if (low := name.lower()) not in HOP_BY_HOP and low not in named and low not in but
    )
