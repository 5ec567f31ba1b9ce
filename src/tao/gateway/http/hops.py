"""Loops of gateways: each names itself to the engine in `x-tao-hop`, and refuses what has passed through it already.

In the manner of `Via` (RFC 9110, section 7.6.3), which other proxies write and rewrite. A gateway behind another one is
fine. It must not know requests beyond their headers.
"""

import secrets
from collections.abc import Iterable

HOP = b"x-tao-hop"
HOPS_MAX = 16


class Hops:
    """One gateway's mark on what it sends. `name`: unlike any other gateway's; drawn by chance unless given."""

    def __init__(self, name: bytes | None = None) -> None:
        self.name = name or secrets.token_hex(8).encode("ascii")

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Why a request must not be passed on; None where it may."""
        passed = _passed(headers)
        if self.name in passed:
            return "this request has passed through this gateway before: a replica behind it leads back to it"
        if len(passed) >= HOPS_MAX:
            return (
                f"this request has passed through {len(passed)} gateways: more than {HOPS_MAX} is a mistake"
            )
        return None

    def marked(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers of a request with this gateway's mark."""
        headers = list(headers)
        others = [field for field in headers if field[0].lower() != HOP]
        return [*others, (HOP, b", ".join((*_passed(headers), self.name)))]


def _passed(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The names of the gateways on the way, the first one first."""
    return [
        name.strip()
        for key, value in headers
        if key.lower() == HOP
        for name in value.split(b",")
        if name.strip()
    ]
