"""Addresses of replicas: which URLs can be one, and what a replica is called.

They are text: whether anybody is there, and who names them, it must not know.
"""

from urllib.parse import urlsplit

LABEL_CHARACTERS_MAX = 63
"""Of each part of a host's name between dots (RFC 1035)."""

_HINT = "write it like http://127.0.0.1:8000, without /v1"


class AddressError(ValueError):
    """A URL that cannot be a replica's; the message names it and says how to write it."""


def check_address(url: str) -> None:
    """Raises `AddressError` where `url` is not scheme, host, port and perhaps a path."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise AddressError(f"replica {url!r}: {error}; {_HINT}") from None
    if not usable:
        raise AddressError(f"replica {url!r} is not an http(s) URL; {_HINT}")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise AddressError(f"replica {url!r} has characters that no URL may have; {_HINT}")
    if not url.isascii():  # neither a look-up nor the head of a request can carry them
        raise AddressError(
            f"replica {url!r} has characters beyond ASCII; write a host in punycode (xn--...), "
            "a path percent-encoded (%C3%BC)"
        )
    if parts.path.rstrip("/").endswith("/v1"):
        raise AddressError(f"replica {url!r} ends in /v1, which clients add themselves; {_HINT}")
    if "?" in url or "#" in url or parts.username is not None:
        raise AddressError(f"replica {url!r} has more than host, port and path; {_HINT}")
    if not _can_be_looked_up(parts.hostname or ""):
        raise AddressError(
            f"replica {url!r} has a host with an empty part between its dots, or one of more than "
            f"{LABEL_CHARACTERS_MAX} characters; {_HINT}"
        )


def _can_be_looked_up(host: str) -> bool:
    """Whether a resolver would take the name at all; a dot at its end makes it absolute."""
    labels = host.removesuffix(".").split(".")
    return ":" in host or all(0 < len(label) <= LABEL_CHARACTERS_MAX for label in labels)


def replica_name(url: str) -> str:
    """Host and port, and the path where there is one: what people call a replica."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{in_url(parts.hostname or '')}:{port}{parts.path.rstrip('/')}"


def same_address(url: str, other: str) -> bool:
    """Whether two URLs of one name lead to the same place: the name has everything but the scheme."""
    return urlsplit(url).scheme == urlsplit(other).scheme


def in_url(host: str) -> str:
    """A host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
