"""What remains of a plan when it comes back and the world has moved (method, section 5).

A rule selects among the plan's own assignments; it makes no new ones and it does not look at values.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tao.core.ids import ReplicaId, SessionId
from tao.core.ports import Assignment, View
from tao.core.session import Session


class StalePlan(Protocol):
    """Selects the assignments that still hold, in order."""

    def select(
        self,
        view: View,
        assignments: Sequence[Assignment],
        changed: Iterable[SessionId],
        weight_tokens: Callable[[Session, ReplicaId], int],
    ) -> Sequence[Assignment]:
        """`changed`: sessions of the plan whose epoch moved on."""


class DropPlan:
    """The paper's rule: one changed session voids the plan; else the longest prefix that present capacity allows."""

    def select(
        self,
        view: View,
        assignments: Sequence[Assignment],
        changed: Iterable[SessionId],
        weight_tokens: Callable[[Session, ReplicaId], int],
    ) -> Sequence[Assignment]:
        if list(changed):
            return ()
        fitting = list(_fitting(view, assignments, weight_tokens))
        prefix = 0
        while prefix < len(fitting) and fitting[prefix] == assignments[prefix]:
            prefix += 1
        return fitting[:prefix]


class DropChanged:
    """Changed sessions are left out, and so is what does not fit; the rest of the plan stands."""

    def select(
        self,
        view: View,
        assignments: Sequence[Assignment],
        changed: Iterable[SessionId],
        weight_tokens: Callable[[Session, ReplicaId], int],
    ) -> Sequence[Assignment]:
        gone = set(changed)
        kept = [assignment for assignment in assignments if assignment[0] not in gone]
        return list(_fitting(view, kept, weight_tokens))


def _fitting(
    view: View, assignments: Sequence[Assignment], weight_tokens: Callable[[Session, ReplicaId], int]
) -> Iterable[Assignment]:
    free_tokens = {replica.id: view.free_tokens(replica.id) for replica in view.up_replicas()}
    free_slots = {replica: view.free_slots(replica) for replica in free_tokens}
    for session_id, replica in assignments:
        session = view.sessions.get(session_id)
        if session is None or session_id not in view.pool or replica not in free_tokens:
            continue
        slots = free_slots[replica]
        tokens = weight_tokens(session, replica)
        if tokens <= free_tokens[replica] and (slots is None or slots > 0):
            free_tokens[replica] -= tokens
            free_slots[replica] = None if slots is None else slots - 1
            yield session_id, replica
