"""Which sessions of a trace to use, and how much of each: count, order by seed, and the longest prompt an
engine takes.

It must not know files or formats.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tao.traces.model import TraceSession


@dataclass(frozen=True, slots=True)
class Selection:
    """The sessions chosen, and what was left out to make them fit."""

    sessions: tuple[TraceSession, ...]
    sessions_shortened: int
    sessions_dropped: int


def select_sessions(
    sessions: Iterable[TraceSession],
    *,
    count_max: int | None = None,
    seed: int | None = None,
    prompt_tokens_max: int | None = None,
) -> Selection:
    """Cut each session before its first turn above `prompt_tokens_max` (prompt and output), then choose.

    A session whose first turn is too long is dropped. With a seed the order is shuffled; `count_max` then
    takes the first ones. A child whose parent was not chosen, or never reaches the turn that spawned it,
    becomes a session of its own.
    """
    fitting: list[TraceSession] = []
    cut_short = dropped = 0
    for session in sessions:
        cut = session if prompt_tokens_max is None else shortened(session, prompt_tokens_max)
        if cut is None:
            dropped += 1
            continue
        cut_short += cut is not session
        fitting.append(cut)
    if seed is not None:
        random.Random(seed).shuffle(fitting)  # noqa: S311 - a repeatable order, not a secret
    chosen = fitting if count_max is None else fitting[:count_max]
    turns_of = {session.session_id: len(session.turns) for session in chosen}
    return Selection(tuple(_with_known_parent(session, turns_of) for session in chosen), cut_short, dropped)


def sample_names(sessions: Iterable[TraceSession], count: int, seed: int) -> dict[str, None]:
    """Ids of `count` sessions drawn evenly from those without a parent, and of all their descendants.

    One pass that keeps the drawn ids and the links of children only. An id listed as parent need not exist.
    """
    rng = random.Random(seed)  # noqa: S311 - a repeatable draw, not a secret
    drawn: list[str] = []
    parent_of: dict[str, str] = {}
    roots = 0
    for session in sessions:
        if session.parent is not None:
            parent_of[session.session_id] = session.parent
            continue
        roots += 1
        if len(drawn) < count:
            drawn.append(session.session_id)
        elif (place := rng.randrange(roots)) < count:
            drawn[place] = session.session_id
    names = dict.fromkeys(drawn)
    descendants = list(parent_of)
    while True:
        found = [name for name in descendants if parent_of[name] in names]
        if not found:
            return names
        names.update(dict.fromkeys(found))
        descendants = [name for name in descendants if name not in names]


def shortened(session: TraceSession, prompt_tokens_max: int) -> TraceSession | None:
    """The session up to its first turn whose prompt and output exceed the limit; None if that is the first."""
    for index, turn in enumerate(session.turns):
        if turn.prompt_tokens + turn.output_tokens > prompt_tokens_max:
            return msgspec.structs.replace(session, turns=session.turns[:index]) if index else None
    return session


def _with_known_parent(session: TraceSession, turns_of: dict[str, int]) -> TraceSession:
    if session.parent is None:
        return session
    if (session.parent_turn or 0) < turns_of.get(session.parent, 0):
        return session
    return msgspec.structs.replace(session, parent=None, parent_turn=None)
