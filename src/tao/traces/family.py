"""Which sessions start by themselves, and which are started by a turn of another one (sub-agents).

Pure. It must not know how sessions are run.
"""

from collections.abc import Sequence

from tao.traces.model import TraceSession


def family_trees(
    sessions: Sequence[TraceSession],
) -> tuple[list[TraceSession], dict[tuple[str, int], list[TraceSession]]]:
    """Sessions without a parent here, and the children of each (parent, turn).

    Raises ValueError if two sessions share an id, or if parents form a circle.
    """
    by_id: dict[str, TraceSession] = {}
    for session in sessions:
        if session.session_id in by_id:
            raise ValueError(
                f"two sessions have the id {session.session_id!r}; ids must be unique in a replay"
            )
        by_id[session.session_id] = session
    roots: list[TraceSession] = []
    children: dict[tuple[str, int], list[TraceSession]] = {}
    for session in sessions:
        parent = by_id.get(session.parent) if session.parent is not None else None
        turn = session.parent_turn or 0
        if parent is None or turn >= len(parent.turns):
            roots.append(session)
        else:
            children.setdefault((parent.session_id, turn), []).append(session)
    reached = _reached(roots, children)
    if len(reached) != len(by_id):
        lost = next(s.session_id for s in sessions if s.session_id not in reached)
        raise ValueError(f"session {lost!r} is its own ancestor; parents must form a tree")
    return roots, children


def _reached(
    roots: list[TraceSession], children: dict[tuple[str, int], list[TraceSession]]
) -> dict[str, TraceSession]:
    reached: dict[str, TraceSession] = {}
    pending = list(roots)
    while pending:
        session = pending.pop()
        reached[session.session_id] = session
        for index in range(len(session.turns)):
            pending.extend(children.get((session.session_id, index), ()))
    return reached
