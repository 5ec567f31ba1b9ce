"""Read access to HTTP header fields given as ASGI gives them: a list of (lower-case name, value) byte pairs.

Only lookup: the list itself is what the proxy forwards. It must not know which headers matter.
"""

from collections.abc import Iterable, Iterator

RawHeaders = Iterable[tuple[bytes, bytes]]


class Headers:
    """First value per name, decoded as latin-1 and stripped; names are case-insensitive."""

    __slots__ = ("_values",)

    def __init__(self, raw: RawHeaders = ()) -> None:
        values: dict[str, str] = {}
        for name, value in raw:
            values.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())
        self._values = values

    def get(self, name: str) -> str:
        """The value of `name` (given in lower case), or an empty string."""
        return self._values.get(name, "")

    def isdisjoint(self, names: frozenset[str]) -> bool:
        """True where none of `names` is present."""
        return names.isdisjoint(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def flag(self, name: str) -> bool:
        """True where the header is present and not an explicit no."""
        return name in self._values and self._values[name].lower() not in {"", "0", "false", "no"}
