"""Whose blocks an engine stores that does not say it: the turns on watched replicas, from their dispatch until recognised.

A turn's blocks are looked for once it has ended (`tao.gateway.unnamed`), if it continued its session and told its usage; a
session whose turn cannot be recognised is known no further. It must not know the streams, nor tell anything to the core.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from tao.core.events import Usage
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.core.ports import View
from tao.gateway.sessionnames import SessionNames
from tao.gateway.unnamed import Ended, Served, new_tokens
from tao.gateway.watchedcache import Watched

STORES_TOKENS_MIN = 512
"""A turn with so many new tokens must have filled a block, unless blocks are known to be larger (hybrid models' are as large
as a state); of several ranks, who knows where."""


class Attribution:
    """The turns on `watched` replicas. Times are by the clock of the events.

    `names`: what engines call a session. `view`: what the core knows of sessions and turns.
    """

    def __init__(self, names: SessionNames, view: View, watched: Mapping[ReplicaId, Watched]) -> None:
        self._names = names
        self._view = view
        self._watched = watched
        self._turns: dict[TurnId, Served] = {}
        self._lines: dict[SessionId, int] = {}

    def __len__(self) -> int:
        """How many turns are followed."""
        return len(self._turns)

    # --- a turn's way -----------------------------------------------------------------------------------------------

    def dispatched(self, turn: TurnId, session: SessionId, replica: ReplicaId, now: float) -> None:
        """A turn goes to a replica: what its session stored there before is recognised now or never."""
        watched = self._watched.get(replica)
        if watched is not None and session in watched.unnamed:
            watched.unnamed.found(session, watched.indexes)  # before its next blocks come
        known, its = self._view.sessions.get(session), self._view.turns.get(turn)
        leads = known is not None and known.side_of is None and its is not None and its.leads
        self._turns[turn] = Served(session, replica, now, its.line if its is not None and leads else None)

    def refused(self, turn: TurnId) -> None:
        """A turn will not run."""
        self._turns.pop(turn, None)

    def finished(self, turn: TurnId, usage: Usage | None, now: float) -> None:
        """A turn has ended: its evidence is what the turn said, until the stream is looked at again."""
        served = self._turns.pop(turn, None)
        if served is None:
            return
        self.look_at(served.session)  # its usage may have shown that its history was cut
        watched = self._watched.get(served.replica)
        if watched is None or not watched.streams:
            return
        watched.dirty[served.session] = None
        if not watched.echoes and served.line is not None:
            self._look_for(watched, served, usage, now)
        if len(watched.streams) == 1 and new_tokens(usage) >= _stores_tokens_min(watched):
            watched.streams[0].follower.expect(served.since, now)

    def came_to_nothing(self, turn: TurnId) -> None:
        """Of a stopped turn the core puts its own estimate in the place of what was told: to be told again."""
        served = self._turns.pop(turn, None)
        if served is not None and served.replica in self._watched:
            self._watched[served.replica].dirty[served.session] = None

    # --- whose blocks -----------------------------------------------------------------------------------------------

    def look_at(self, session: SessionId) -> None:
        """Forget the blocks of a context that the session no longer continues: it was cut, or asks for another model."""
        line = self._line(session)
        if line is not None and self._lines.setdefault(session, line) != line:
            self.forget(session)
            self._lines[session] = line

    def forget(self, session: SessionId) -> None:
        """None of its blocks count any more, wherever they are: also if an engine tells of them again."""
        for watched in self._watched.values():
            watched.unnamed.drop(session)
            watched.forget(self._names.name(session))
        self._names.renew(session)
        self._lines.pop(session, None)

    def void(self, watched: Watched, until: float = inf) -> None:
        """What was stored before the cache was emptied, or told and lost, is nobody's: nor are the turns' of that time."""
        watched.unnamed.drop_until(until)
        for turn, served in self._turns.items():
            if served.replica == watched.replica and served.since <= until:
                self._turns[turn] = replace(served, line=None)

    def recognise(self, watched: Watched, now: float) -> None:
        """Find whose the blocks are that nobody named."""
        for turn in list(watched.unnamed):
            if self._line(turn.session) != turn.line:
                self.forget(turn.session)
        watched.unnamed.look(watched.indexes, watched.heard_at)
        on_it = [served.since for served in self._turns.values() if served.replica == watched.replica]
        oldest = min([*on_it, *(turn.since for turn in watched.unnamed)], default=now)
        for index in watched.indexes:
            index.unnamed.forget_before(oldest)

    def _look_for(self, watched: Watched, served: Served, usage: Usage | None, now: float) -> None:
        """Recognise the blocks of a turn from now on; where it does not tell how many they are, know none any more."""
        line = self._line(served.session)
        if line is None:
            return
        name = self._names.name(served.session)
        if usage is None or usage.cached_tokens is None or line != served.line:
            watched.unnamed.drop(served.session)
            watched.forget(name)
            return
        itself = self._names.is_clients(name)
        watched.unnamed.wait(Ended.of(served, name, usage, now, named_itself=itself))

    def _line(self, session: SessionId) -> int | None:
        known = self._view.sessions.get(session)
        return None if known is None else known.line


def _stores_tokens_min(watched: Watched) -> int:
    """New tokens that fill a block for sure; one more than a block has, since some engines compute no last one."""
    return max([STORES_TOKENS_MIN, *(1 + (index.block_tokens or 0) for index in watched.indexes)])
