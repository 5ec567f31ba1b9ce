"""Names of things. Ids come from outside (clients, drivers, configuration); the core never invents one, with a single
exception: a side turn becomes a one-turn session whose id is derived from its turn (see `side_session_id`).

All ids are strings so that logs, headers and metrics need no conversion; the types keep them apart for the reader.
"""

from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
ReplicaId = NewType("ReplicaId", str)
PlanId = NewType("PlanId", int)


def side_session_id(session: SessionId, turn: TurnId) -> SessionId:
    """The id of the one-turn session that carries a side turn of `session`."""
    return SessionId(f"{session}#side:{turn}")
