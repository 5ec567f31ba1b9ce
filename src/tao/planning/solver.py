"""What a solver is: an instance and a limit in, a solution in indices out.

The classes behind the names are in `tao.planning.basic` and `tao.planning.portfolio`; `tao.planning.solvers` names
them and turns a solution into an answer.
"""

from dataclasses import dataclass
from typing import Protocol

from tao.planning.answer import Status
from tao.planning.instance import Instance, Ints
from tao.planning.problem import Triple

DETERMINISTIC_SECONDS = 0.5
"""Default of `WorkLimit.deterministic_seconds`: one to three seconds of wall clock, above what pools need."""


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """How long a search may go on.

    `deterministic_seconds` is CP-SAT's count of its own work: equal runs stop at the same place. `seconds` is a
    wall-clock guard for live use, None for none: two runs may then differ. Solvers without search ignore both.
    """

    deterministic_seconds: float = DETERMINISTIC_SECONDS
    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solver's answer in indices: `choice` (n,), and the certificate fields of `Answer`."""

    choice: Ints
    status: Status
    solver: str
    bound: Triple
    work_units: int
    quantum_tokens: int | None = None


class Solver(Protocol):
    """Finds an assignment; always returns a feasible one, and says what it has proved."""

    def solve(self, instance: Instance, limit: WorkLimit) -> Solution: ...
