"""What policies have in common that admit sessions by a rule of their own and ask for no joint decision.

It must not know any of those rules.
"""

from collections.abc import Iterable, Mapping, Sequence

from tao.core.events import PlanReady, PrefixNode
from tao.core.ids import SessionId
from tao.core.ports import Assignment, View
from tao.core.session import ReplicaState, Session


class Unplanned:
    """The part of a policy that concerns plans, and a common explanation. Sessions are never given up on."""

    def lapsed(self, view: View, at: float) -> Sequence[SessionId]:  # noqa: ARG002
        return ()

    def select(
        self,
        view: View,  # noqa: ARG002
        plan: PlanReady,  # noqa: ARG002
        changed: Iterable[SessionId],  # noqa: ARG002
        at: float,  # noqa: ARG002
    ) -> Sequence[Assignment]:
        return ()

    def weight_tokens(self, session: Session) -> int:
        """The context so far."""
        return session.live_tokens

    def shared_prefix(self, session: Session) -> tuple[PrefixNode, ...]:  # noqa: ARG002
        """None of the peers counts what sessions share but once."""
        return ()

    def explain(self, view: View, session: Session, at: float) -> Mapping[str, object]:  # noqa: ARG002
        return {
            "weight_tokens": self.weight_tokens(session),
            "footprint_tokens": session.footprint_tokens,
            "free_tokens": {replica.id: view.free_tokens(replica.id) for replica in view.up_replicas()},
        }


def is_home_up(view: View, session: Session) -> bool:
    """Whether the session holds an admission on a replica that is up."""
    return session.home is not None and view.replicas[session.home].state is ReplicaState.UP
