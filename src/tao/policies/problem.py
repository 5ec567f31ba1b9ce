"""The bridge from the core's snapshot of a decision to the planner's integers, and back.

The core and the planner know nothing of each other; drivers call these two functions around the planner.
"""

from collections.abc import Mapping

from tao.core.ids import ReplicaId, SessionId
from tao.core.plans import Candidate, PlanRequest
from tao.core.ports import Assignment
from tao.planning import Item, Knapsack, Problem, SparseValues, hold_back


def problem_of(request: PlanRequest) -> Problem:
    """Replicas become knapsacks, candidates become items (method, section 2, eq. 1-3).

    Where the oldest of those that waited too long fits nowhere, a replica is kept for it.
    """
    everywhere = tuple(request.free_tokens)
    slots = request.free_slots or {}
    problem = Problem(
        knapsacks=tuple(
            Knapsack(replica, free_tokens, slots.get(replica))
            for replica, free_tokens in request.free_tokens.items()
        ),
        items=tuple(_item(candidate, everywhere) for candidate in request.candidates),
        wait_seconds_max=request.wait_seconds_max,
    )
    return hold_back(problem)


def assignments_of(request: PlanRequest, assignment: Mapping[str, str]) -> tuple[Assignment, ...]:
    """The planner's answer in the order in which to apply it: most valuable placement first, then by id.

    The order matters when a plan no longer fits as a whole (method, section 5).
    """

    def rank(candidate: Candidate) -> tuple[int, int, int, str]:
        credit_tokens = candidate.credit_tokens.get(ReplicaId(assignment[candidate.session]), 0)
        return -credit_tokens, -candidate.ready, -candidate.footprint_tokens, candidate.session

    chosen = sorted((c for c in request.candidates if c.session in assignment), key=rank)
    return tuple((SessionId(c.session), ReplicaId(assignment[c.session])) for c in chosen)


def _item(candidate: Candidate, everywhere: tuple[ReplicaId, ...]) -> Item:
    return Item(
        id=candidate.session,
        weight_tokens=candidate.weight_tokens,
        values=SparseValues(
            eligible=candidate.eligible if candidate.eligible is not None else everywhere,
            credit={str(replica): tokens for replica, tokens in candidate.credit_tokens.items()},
            readiness=candidate.ready,
            footprint=candidate.footprint_tokens,
        ),
        home=candidate.home,
        waited_seconds=candidate.waited_seconds,
    )
