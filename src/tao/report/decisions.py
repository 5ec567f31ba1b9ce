"""Solvers compared on recorded joint decisions: who keeps more, in which coordinate, by how much, in what time.

Pure but for the solvers' time: problems in, numbers out. It must not know where the snapshots come from, nor how the
figures are shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import process_time

from tao.planning import Answer, InfeasibleError, Item, Problem, solve, verify
from tao.report.suite import SnapshotSuite

COORDINATES = ("aged", "credit", "readiness", "footprint")
"""In the order in which they count; `aged`: sessions past the bound on waiting, oldest first."""

Worth = tuple[tuple[int, ...], int, int, int]


@dataclass(frozen=True, slots=True)
class Solved:
    """One solver's answer. `cpu_seconds`: processor time of the solver, preparation included."""

    answer: Answer
    cpu_seconds: float

    @property
    def worth(self) -> Worth:
        """What is compared, coordinate by coordinate."""
        ageing = self.answer.ageing
        return (() if ageing is None else ageing.rank, *self.answer.objective)


@dataclass(frozen=True, slots=True)
class Difference:
    """A solver behind another: the coordinate that decides, and what it lacks there as a share of the other's value.

    `short` is None for `aged`, where the oldest count and not a sum.
    """

    coordinate: str
    short: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """One snapshot, decided by every solver.

    `candidates`: sessions that fit somewhere alone; the others cannot be placed by anybody. `violations`: answers that
    are not what they say.
    """

    name: str
    sessions: int
    replicas: int
    candidates: int
    solved: dict[str, Solved]
    violations: tuple[str, ...] = ()

    @property
    def has_several(self) -> bool:
        """Whether there is anything to decide jointly."""
        return self.candidates > 1

    def is_contested(self, reference: str) -> bool:
        """Whether the reference leaves candidates waiting: they compete for the same room."""
        return self.has_several and len(self.solved[reference].answer.assignment) < self.candidates

    def behind(self, solver: str, other: str) -> Difference | None:
        """How `solver` is worse than `other`; None where it is as good or better."""
        ours, theirs = self.solved[solver].worth, self.solved[other].worth
        if ours >= theirs:
            return None
        at = next(n for n, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        mine, best = ours[at], theirs[at]
        short = (best - mine) / best if isinstance(best, int) and isinstance(mine, int) else None
        return Difference(COORDINATES[at], short)


@dataclass(frozen=True, slots=True)
class Tally:
    """A solver against the reference on some decisions. `behind`: how often, by the coordinate that decides.

    `ahead` can only be where the reference has not proved its answer. `shorts`: what is lacking in the deciding
    coordinate, sorted.
    """

    decisions: int
    equal: int
    ahead: int
    behind: dict[str, int]
    shorts: tuple[float, ...]

    @property
    def worse(self) -> int:
        """In how many decisions the reference keeps more."""
        return sum(self.behind.values())

    @property
    def worse_share(self) -> float | None:
        return self.worse / self.decisions if self.decisions else None


@dataclass(frozen=True, slots=True)
class DecisionGroup:
    """The decisions of one run (or one folder), in their order."""

    title: str
    decisions: tuple[Decision, ...]

    def several(self) -> list[Decision]:
        """Those with several candidates."""
        return [decision for decision in self.decisions if decision.has_several]

    def contested(self, reference: str) -> list[Decision]:
        """Those whose candidates do not all find room."""
        return [decision for decision in self.decisions if decision.is_contested(reference)]


@dataclass(frozen=True, slots=True)
class JointEvaluation:
    """Solvers compared. `stand_ins`: traces that were not there, and what stood in for them."""

    suite: SnapshotSuite
    groups: tuple[DecisionGroup, ...]
    stand_ins: dict[str, str]

    @property
    def together(self) -> DecisionGroup:
        """All decisions as one group."""
        return DecisionGroup("all", tuple(d for group in self.groups for d in group.decisions))

    @property
    def violations(self) -> list[str]:
        """Answers that are wrong, and proved answers that another solver beats."""
        reference = self.suite.reference
        found = [
            f"{group.title}, {decision.name}: {text}"
            for group in self.groups
            for decision in group.decisions
            for text in decision.violations
        ]
        return found + [
            f"{group.title}, {decision.name}: {solver} beats the proved answer of {reference}"
            for group in self.groups
            for decision in group.decisions
            for solver in self.suite.solvers
            if decision.solved[reference].answer.status == "optimal"
            and decision.behind(reference, solver) is not None
        ]


def decide(name: str, problem: Problem, solvers: Iterable[str]) -> Decision:
    """Let every solver decide, and check each answer against the problem."""
    solved: dict[str, Solved] = {}
    violations: list[str] = []
    for solver in solvers:
        started = process_time()
        answer = solve(problem, solver)
        solved[solver] = Solved(answer, process_time() - started)
        violations += _wrong(problem, solver, answer)
    return Decision(
        name=name,
        sessions=len(problem.items),
        replicas=len(problem.knapsacks),
        candidates=sum(_fits_alone(problem, item) for item in problem.items),
        solved=solved,
        violations=tuple(violations),
    )


def tally(decisions: Sequence[Decision], solver: str, reference: str) -> Tally:
    """Count where `solver` is behind `reference`, equal to it, or ahead."""
    differences = [decision.behind(solver, reference) for decision in decisions]
    known = [difference for difference in differences if difference is not None]
    ahead = sum(decision.behind(reference, solver) is not None for decision in decisions)
    return Tally(
        decisions=len(decisions),
        equal=len(decisions) - len(known) - ahead,
        ahead=ahead,
        behind={name: sum(d.coordinate == name for d in known) for name in COORDINATES},
        shorts=tuple(sorted(d.short for d in known if d.short is not None)),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that a share of the sorted values does not pass; None without any."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _wrong(problem: Problem, solver: str, answer: Answer) -> list[str]:
    try:
        objective = verify(problem, answer.assignment)
    except InfeasibleError as error:
        return [f"{solver}: {error}"]
    return [] if objective == answer.objective else [f"{solver}: says {answer.objective}, has {objective}"]


def _fits_alone(problem: Problem, item: Item) -> bool:
    return any(
        knapsack.id in item.values and item.weight_tokens <= knapsack.capacity_tokens and knapsack.slots != 0
        for knapsack in problem.knapsacks
    )
