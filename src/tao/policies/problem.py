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
    slots, ids = request.free_slots or {}, item_ids(request)
    problem = Problem(
        knapsacks=tuple(
            Knapsack(replica, free_tokens, slots.get(replica))
            for replica, free_tokens in request.free_tokens.items()
        ),
        items=tuple(_item(candidate, ids[candidate.session], everywhere) for candidate in request.candidates),
        wait_seconds_max=request.wait_seconds_max,
    )
    return hold_back(problem)


def assignments_of(request: PlanRequest, assignment: Mapping[str, str]) -> tuple[Assignment, ...]:
    """The planner's answer in the order in which to apply it: most valuable placement first, then by id.

    The order matters when a plan no longer fits as a whole (method, section 5).
    """

    def rank(candidate: Candidate) -> tuple[int, int, int, int, str]:
        credit_tokens = candidate.credit_tokens.get(ReplicaId(assignment[ids[candidate.session]]), 0)
        worth = (-credit_tokens, -candidate.ready, -candidate.footprint_tokens)
        return *worth, candidate.rank, candidate.session

    ids = item_ids(request)
    chosen = sorted((c for c in request.candidates if ids[c.session] in assignment), key=rank)
    return tuple((c.session, ReplicaId(assignment[ids[c.session]])) for c in chosen)


def item_ids(request: PlanRequest) -> Mapping[SessionId, str]:
    """What the planner calls the sessions. It settles ties by id, so ranks come first in the id where there are any."""
    if not any(candidate.rank for candidate in request.candidates):
        return {candidate.session: candidate.session for candidate in request.candidates}
    return {
        candidate.session: f"{candidate.rank:06d} {candidate.session}" for candidate in request.candidates
    }


def _item(candidate: Candidate, item_id: str, everywhere: tuple[ReplicaId, ...]) -> Item:
    return Item(
        id=item_id,
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
