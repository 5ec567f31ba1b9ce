"""Who gives way on a replica that is over its budget: ACTING programs at once, smallest first, then marks on others.

A marked program is paused when its request in flight ends.
"""

from collections.abc import Iterable
from typing import Protocol

from tao.policies.baselines.thunderagent.programs import Program


class Marking(Protocol):
    """Which REASONING programs are marked when pausing all ACTING ones was not enough."""

    def marks(self, over_tokens: int, unmarked: Iterable[Program], marked_tokens: int) -> list[Program]:
        """`over_tokens` > 0: by how much the budget is exceeded. `marked_tokens`: what earlier marks will free."""


class MarkEnough:
    """Smallest first, until what marks will free covers the excess (ThunderAgent's pull request 34, never merged)."""

    def marks(self, over_tokens: int, unmarked: Iterable[Program], marked_tokens: int) -> list[Program]:
        chosen: list[Program] = []
        over_tokens -= marked_tokens
        for program in _smallest_first(unmarked):
            if over_tokens <= 0:
                break
            chosen.append(program)
            over_tokens -= program.need_tokens
        return chosen


class MarkAll:
    """The defect of the original: marks free nothing in its sum, so that every REASONING program is marked."""

    def marks(self, over_tokens: int, unmarked: Iterable[Program], marked_tokens: int) -> list[Program]:  # noqa: ARG002
        return _smallest_first(unmarked)


def pause(over_tokens: int, acting: Iterable[Program]) -> tuple[list[Program], int]:
    """ACTING programs to pause, smallest first, and by how much the budget is still exceeded then."""
    chosen: list[Program] = []
    for program in _smallest_first(acting):
        if over_tokens <= 0:
            break
        chosen.append(program)
        over_tokens -= program.need_tokens
    return chosen, over_tokens


def _smallest_first(programs: Iterable[Program]) -> list[Program]:
    return sorted(programs, key=lambda program: (program.tokens, program.id))
