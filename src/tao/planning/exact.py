"""The exact solver on raw tokens: coordinates are proved one after another, each by a search as small as it can be.

Credit is sparse (an item has it in one or two knapsacks), so the best sum of credit is proved over those pairs alone.
Then the sets of credited pairs that reach it are listed, nearly always one: after each, the room that is left is
filled for readiness and footprint, a far smaller problem, and the best completion is the optimum. Where there are too
many such sets, all pairs are searched at once. Must not know the solver library (`tao.planning.search`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tao.planning.bounds import is_best
from tao.planning.heuristics import most_ready, value_first
from tao.planning.instance import SKIP, Instance, Ints, Mask
from tao.planning.local_search import improve
from tao.planning.packing import TRIPLE_LEVELS, Group, Packing, pack
from tao.planning.problem import Triple
from tao.planning.search import Allowance, AtLeast, Search

CREDITED_SETS_MAX = 8
"""So many sets of credited pairs of the best sum are listed, before all pairs are searched at once."""
REST_SHARE_MIN, REST_SHARE_MAX, REST_SHARE_PER_PAIR = 0.04, 0.3, 2e-4
"""Part of the allowance that one search over what credit leaves open may use: such a proof is quick or hopeless."""
PAIRS_AT_ONCE_MAX = 6_000
"""More pairs than this are not searched at once: building the model alone would use up the time."""


@dataclass(slots=True, eq=False)
class Proof:
    """What is known so far: the best plan, upper bounds of its triple, and whether it is proved optimal."""

    choice: Ints
    bound: Triple
    proved: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ExactSearch:
    """One run on one instance; `allowance` is charged for every search."""

    instance: Instance
    packing: Packing
    search: Search
    allowance: Allowance
    credited: Mask = field(init=False)
    aged: Mask = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "credited", self.instance.eligible & (self.instance.values[0] > 0))
        object.__setattr__(self, "aged", self.instance.eligible & (self.instance.priority > 0)[:, None])

    def run(self, start: Ints) -> Proof:
        """Improve `start` until it is proved optimal or the allowance is spent."""
        proof = Proof(start, self.packing.bound)
        if not self._prove_priority(proof):
            return proof
        credited = self._prove_credit(proof)
        if credited is None or self._complete_all(proof, credited):
            return proof
        if int(self.instance.eligible.sum()) <= PAIRS_AT_ONCE_MAX and not self.allowance.exhausted:
            self._search_all(self.instance, self.packing, proof)
        return proof

    def _prove_priority(self, proof: Proof) -> bool:
        """As many aged items as possible, oldest first; true where that is proved (or nothing is aged)."""
        if not self.aged.any():
            return True
        objective = self.instance.priority[:, None] * self.aged
        result = self.allowance.charge(
            self.search(self.instance, self.aged, objective, self.allowance.limit(), hint=proof.choice)
        )
        if result.choice is not None:
            self._offer(proof, _fill(self.instance, self.packing, result.choice))
        return result.proved

    def _prove_credit(self, proof: Proof) -> Ints | None:
        """The credited pairs of a plan of proved best credit, or None where the proof failed."""
        if not self.credited.any():
            return np.full(len(proof.choice), SKIP, dtype=np.int64)
        result = self.allowance.charge(
            self.search(
                self.instance,
                self.credited | self.aged,
                self.instance.values[0],
                self.allowance.limit(),
                hint=proof.choice,
                at_least=self._as_aged_as(proof.choice),
            )
        )
        if result.bound is not None:
            proof.bound = proof.bound._replace(credit=min(proof.bound.credit, result.bound))
        if result.choice is None:
            return None
        if result.proved:
            return self._only_credited(result.choice)
        self._offer(proof, _fill(self.instance, self.packing, result.choice))
        return None

    def _complete_all(self, proof: Proof, credited: Ints) -> bool:
        """Complete every set of credited pairs with the best credit; true where all were listed.

        The bounds of readiness and footprint are then those of the completions.
        """
        best_credit = self.instance.score(credited).credit
        sets: list[Ints] = []
        bounds: list[Triple] = []
        proved = True
        following: Ints | None = credited
        while following is not None:
            if len(sets) == CREDITED_SETS_MAX:
                return False
            sets.append(following)
            completion = self._complete(following)
            bounds.append(completion.bound)
            proved = proved and completion.proved
            self._offer(proof, completion.choice)
            listed, following = self._another_set(proof, sets, best_credit)
            if not listed:
                return False
        readiness = max(bound.readiness for bound in bounds)
        footprint = max(bound.footprint for bound in bounds)
        proof.bound = Triple(best_credit, readiness, footprint)
        proof.proved = proved
        if proved:
            proof.bound = self.instance.score(proof.choice).triple
        return True

    def _another_set(self, proof: Proof, sets: Sequence[Ints], best_credit: int) -> tuple[bool, Ints | None]:
        """(known, set): one more set of credited pairs that reaches `best_credit`; None where there is no other."""
        if not self.credited.any():
            return True, None
        if self.allowance.exhausted:
            return False, None
        result = self.allowance.charge(
            self.search(
                self.instance,
                self.credited | self.aged,
                self.instance.values[0],
                self.allowance.limit(),
                at_least=self._as_aged_as(proof.choice),
                excluded=sets,
                enough=best_credit,
            )
        )
        if result.bound is None or result.bound < best_credit:
            return True, None
        if result.choice is None or self.instance.score(result.choice).credit < best_credit:
            return False, None
        return True, self._only_credited(result.choice)

    def _complete(self, credited: Ints) -> Proof:
        """Fill what `credited` leaves over, with pairs that bring no credit."""
        placed = credited != SKIP
        free, slots = self.instance.free(credited)
        open_ = self.instance.eligible & ~self.credited & ~placed[:, None]
        open_ &= (self.instance.weights[:, None] <= free[None, :]) & (slots > 0)[None, :]
        rest = replace(
            self.instance,
            capacities=free,
            slots=slots,
            eligible=open_,
            values=self.instance.values * open_,
            priority=np.where(placed, 0, self.instance.priority),
        )
        proof = self._fill_rest(rest)
        fixed = self.instance.score(credited).triple
        bound = Triple(*(a + b for a, b in zip(fixed, proof.bound, strict=True)))
        return Proof(np.where(placed, credited, proof.choice), bound, proof.proved)

    def _fill_rest(self, rest: Instance) -> Proof:
        packing = pack(rest)
        starts = (_fill(rest, packing, heuristic(rest)) for heuristic in (value_first, most_ready))
        start = max(starts, key=rest.score)
        proof = Proof(start, packing.bound)
        if not rest.eligible.any() or is_best(rest, start, proof.bound):
            proof.proved = True
        elif int(rest.eligible.sum()) <= PAIRS_AT_ONCE_MAX and not self.allowance.exhausted:
            self._search_all(rest, packing, proof)
        return proof

    def _search_all(self, instance: Instance, packing: Packing, proof: Proof) -> None:
        """Search over every pair, group after group of packed levels; a proved group is a constraint of the next."""
        pairs = int(instance.eligible.sum())
        share = min(REST_SHARE_MAX, REST_SHARE_MIN + REST_SHARE_PER_PAIR * pairs)
        met: list[AtLeast] = []
        done = 0
        for group in packing.groups:
            result = self.allowance.charge(
                self.search(
                    instance,
                    instance.eligible,
                    group.values,
                    self.allowance.limit(share),
                    hint=proof.choice,
                    at_least=met,
                )
            )
            if result.choice is not None and instance.score(result.choice) > instance.score(proof.choice):
                proof.choice = result.choice
            if result.bound is not None and result.choice is not None:
                _tighten(instance, proof, group, done, result.bound)
            done += len(group.levels)
            if done >= TRIPLE_LEVELS:
                proof.proved = proof.proved or result.proved
            if not result.proved or self.allowance.exhausted:
                return
            met.append(AtLeast(group.values, _total(group.values, proof.choice)))

    def _as_aged_as(self, choice: Ints) -> list[AtLeast]:
        if not self.aged.any():
            return []
        least = int(self.instance.priority[choice != SKIP].sum())
        return [AtLeast(self.instance.priority[:, None] * self.aged, least)]

    def _only_credited(self, choice: Ints) -> Ints:
        items = np.arange(len(choice))
        keep = (choice != SKIP) & self.credited[items, np.maximum(choice, 0)]
        return np.where(keep, choice, SKIP)

    def _offer(self, proof: Proof, choice: Ints) -> None:
        if self.instance.score(choice) > self.instance.score(proof.choice):
            proof.choice = choice


def _fill(instance: Instance, packing: Packing, choice: Ints) -> Ints:
    return choice if packing.triple is None else improve(instance, choice, packing.triple)[0]


def _tighten(instance: Instance, proof: Proof, group: Group, done: int, bound: int) -> None:
    """Lower the bounds of the triple's coordinates that `group` (levels from `done` on) holds."""
    reached = tuple(instance.score(proof.choice))[done : done + len(group.levels)]
    ceilings = group.ceilings(bound, reached)
    coordinates = list(proof.bound)
    for level, ceiling in enumerate(ceilings, start=done):
        if 1 <= level < TRIPLE_LEVELS:
            coordinates[level - 1] = min(coordinates[level - 1], ceiling)
    proof.bound = Triple(*coordinates)


def _total(values: Ints, choice: Ints) -> int:
    items = np.flatnonzero(choice != SKIP)
    return int(values[items, choice[items]].sum())
