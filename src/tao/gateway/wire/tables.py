"""A bounded table of what was lately used: least recently used out first, idle entries expire.

Time is passed in. It must not know what it holds.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentTable(Generic[Value]):
    """String keys to values, at most `entries_max`, each dropped `idle_seconds` after its last use.

    `dropped` is called with the key and value of an entry that leaves by itself, for tables that depend on
    it.
    """

    __slots__ = ("_dropped", "_entries", "_entries_max", "_idle_seconds")

    def __init__(
        self,
        entries_max: int,
        idle_seconds: float,
        dropped: Callable[[str, Value], None] | None = None,
    ) -> None:
        if entries_max < 1:
            raise ValueError(f"entries_max must be at least 1, got {entries_max}")
        if not idle_seconds > 0:
            raise ValueError(f"idle_seconds must be above 0, got {idle_seconds}")
        self._entries: OrderedDict[str, tuple[float, Value]] = OrderedDict()
        self._entries_max = entries_max
        self._idle_seconds = idle_seconds
        self._dropped = dropped

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def peek(self, key: str) -> Value | None:
        """The value of `key`, without counting as a use."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def use(self, key: str, now: float) -> Value | None:
        """The value of `key`, which counts as used at `now`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self.put(key, entry[1], now)
        return entry[1]

    def put(self, key: str, value: Value, now: float) -> None:
        """Set `key`; the entry that was unused for longest makes room."""
        self._entries[key] = (now, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._entries_max:
            self._drop_oldest()

    def remove(self, key: str) -> Value | None:
        """Take `key` out, without calling `dropped`."""
        entry = self._entries.pop(key, None)
        return None if entry is None else entry[1]

    def expire(self, now: float) -> int:
        """Drop what was not used for `idle_seconds`; how many that were."""
        count = 0
        while self._entries:
            oldest = next(iter(self._entries.values()))[0]
            if now - oldest <= self._idle_seconds:
                break
            self._drop_oldest()
            count += 1
        return count

    def _drop_oldest(self) -> None:
        key, (_, value) = self._entries.popitem(last=False)
        if self._dropped is not None:
            self._dropped(key, value)
