"""What can be wrong with a trace, and the two answers to a bad line: refuse the trace, or count the line and
go on.

A reader calls its `on_bad_line` with each bad line; `refuse` raises, a `SkippedLines` counts. This file must
not know any format.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


class TraceError(ValueError):
    """A trace cannot be read. The message names the file, the line where there is one, and what is wrong."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """One line (or file, for formats with a session a file) that is not what its format says. Lines count
    from 1.
    """

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


OnBadLine = Callable[[BadLine], None]


def refuse(bad: BadLine) -> None:
    """Raise TraceError at the first bad line."""
    raise TraceError(str(bad))


@dataclass(slots=True)
class SkippedLines:
    """Counts bad lines and keeps the first few, so that a report can show them."""

    kept_max: int = 10
    count: int = 0
    first: list[BadLine] = field(default_factory=list)

    def __call__(self, bad: BadLine) -> None:
        self.count += 1
        if len(self.first) < self.kept_max:
            self.first.append(bad)
