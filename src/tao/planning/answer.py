"""What a solver hands back: an assignment, what it is worth, and how far from the best it can be.

The certificate is `bound`: read it coordinate by coordinate. Solvers fill it in, `tao.planning.verify` recomputes the
objective from the assignment alone. Must not know how any solver works.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tao.planning.ageing import OLDEST_IN_ORDER
from tao.planning.problem import Triple

Status = Literal["optimal", "feasible", "fallback"]
"""`optimal`: no assignment has a larger objective. `feasible`: not proved. `fallback`: the solver gave up and
best-fit-decreasing answered."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """The items that waited too long: which of them are placed, and what putting them first costs.

    Both oldest first. `price` is the objective without ageing minus the objective with it, coordinate by coordinate;
    later coordinates may be negative where an earlier one is not.
    """

    aged: tuple[str, ...]
    placed: tuple[str, ...]
    price: Triple

    @property
    def rank(self) -> tuple[int, ...]:
        """What is maximised before the triple: whether each of the oldest is placed, and how many of the others are."""
        ranked = tuple(int(item in self.placed) for item in self.aged[:OLDEST_IN_ORDER])
        return (*ranked, len(self.placed) - sum(ranked))


@dataclass(frozen=True, slots=True)
class Answer:
    """An assignment with its certificate.

    - `assignment`: item id to knapsack id, in plan order: aged items first, then by value from high to low, then id.
    - `objective`: the summed triple of the assignment.
    - `bound`: each coordinate is an upper bound over all assignments that are at least as good as this one in the
      coordinates before it (and, with ageing, that place the same aged items); equal to `objective` where optimal.
    - `moves`: placed items that have a home and are not placed there.
    - `work_units`: work done, a deterministic count; one unit is about a microsecond on the machine of
      `benchmarks/results/planning.md`, so a simulator can charge planning time without a clock.
    - `elapsed_seconds`: wall-clock time inside the solver; the only field that differs between equal runs.
    - `quantum_tokens`: the rounding unit of the quantised dynamic programme, where it gave the answer.
    """

    status: Status
    solver: str
    assignment: Mapping[str, str]
    objective: Triple
    bound: Triple
    moves: int
    work_units: int
    elapsed_seconds: float
    quantum_tokens: int | None = None
    ageing: Ageing | None = None
