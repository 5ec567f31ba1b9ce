"""Recognising a session's blocks where the engine does not say whose they are: by where a finished turn must have begun and
ended to store, and when.

The usage of a turn tells it to the block: what was cached is where its blocks begin, prompt and output less the last token
are where they end. Blocks that were stored so since the turn was dispatched are the turn's, if no others were, and if they
are no other turn's as well. Anything else is no evidence: the session's chain is forgotten until a later turn is recognised.
It must not know the core, nor sockets.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tao.core.events import Usage
from tao.core.ids import ReplicaId, SessionId
from tao.engines.kv_index import BlockIndex

LOOKS_MAX = 10
"""How often a turn's blocks are looked for, a tenth of a second apart, where the engine has told of anything since the turn
has ended: it tells in order. Looks and not seconds, so that a process that was stalled still reads what has come meanwhile.
"""
UNHEARD_LOOKS_MAX = 50
"""Where it has told of nothing yet. vLLM tells with each step, SGLang while it decodes with every fortieth."""


_Block = tuple[int, int]
"""The rank, by its place among all, and the last block that a turn may have stored there."""
_Fits = dict[_Block, int]
"""Those that a turn may have stored last, with the number of blocks of its context."""


@dataclass(frozen=True, slots=True)
class Served:
    """A turn on a replica since a moment of the clock. `line`: of the session, where the turn continues it; else None."""

    session: SessionId
    replica: ReplicaId
    since: float
    line: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that has ended and whose blocks are looked for.

    `name`: the session's in the index. `since`, `until`: when it was dispatched and when it ended, by the clock of the
    events. `cached_tokens`: 0 up to `prompt_tokens`; `context_tokens`: prompt and output together. `line`: of the session,
    which it continues. `named_itself`: its client gave the name that the engine knows it by.
    """

    session: SessionId
    name: str
    since: float
    until: float
    cached_tokens: int
    prompt_tokens: int
    context_tokens: int
    line: int | None
    named_itself: bool

    @classmethod
    def of(
        cls, served: Served, name: str, usage: Usage, until: float, *, named_itself: bool = False
    ) -> "Ended":
        """What there is to look for. `usage` tells its cached tokens."""
        prompt_tokens = usage.prompt_tokens
        cached_tokens = min(usage.cached_tokens or 0, prompt_tokens)
        context_tokens = prompt_tokens + usage.output_tokens
        return cls(
            served.session,
            name,
            served.since,
            until,
            cached_tokens,
            prompt_tokens,
            context_tokens,
            served.line,
            named_itself,
        )

    def stored(self, block_tokens: int) -> tuple[tuple[int, ...], range]:
        """Where its blocks may begin, and where they may end. The last token is computed by some engines and not by others.

        Of a prompt that the engine may have in full, the last block is computed all the same, and not stored again.
        """
        start, whole = self.cached_tokens // block_tokens, self.prompt_tokens // block_tokens
        ends = range(max(self.context_tokens - 1, 0) // block_tokens, self.context_tokens // block_tokens + 1)
        had_all_but_the_last = self.prompt_tokens == whole * block_tokens and whole - start == 1
        return (start, whole) if had_all_but_the_last else (start,), ends


def new_tokens(usage: Usage | None) -> int:
    """Those that a turn must have computed. Of a prompt of which nobody says how much was cached, that may be none."""
    if usage is None:
        return 0
    cached_tokens = usage.prompt_tokens if usage.cached_tokens is None else usage.cached_tokens
    return usage.prompt_tokens - cached_tokens + usage.output_tokens


class Unnamed:
    """The turns of one replica whose blocks are looked for, one a session. `recognised`, `unrecognised`: turns so far."""

    def __init__(self) -> None:
        self.recognised = 0
        self.unrecognised = 0
        self._waiting: dict[SessionId, Ended] = {}
        self._looks: dict[SessionId, int] = {}

    def __contains__(self, session: SessionId) -> bool:
        return session in self._waiting

    def __iter__(self) -> Iterator[Ended]:
        return iter(self._waiting.values())

    def wait(self, turn: Ended) -> None:
        """Look for the blocks of this turn from now on, and no more for those of the session's last one."""
        self.unrecognised += turn.session in self._waiting
        self._waiting[turn.session] = turn
        self._looks[turn.session] = 0

    def drop(self, session: SessionId) -> None:
        """Look no more: it was found, its context starts afresh, or it is over."""
        self._waiting.pop(session, None)
        self._looks.pop(session, None)

    def drop_until(self, moment: float) -> None:
        """Look no more for those that were dispatched by then."""
        for turn in [each for each in self if each.since <= moment]:
            self.drop(turn.session)

    def look(self, indexes: Sequence[BlockIndex], heard_at: float | None) -> None:
        """Tie to their sessions the blocks of the turns that can be told; give up those that were looked for enough.

        `heard_at`: until when all that the engine has told is known.
        """
        for turn in list(self):
            if _is_named(turn, indexes) or not _has_stored(turn, indexes):
                self.drop(turn.session)
        fits, claims = self._claims(indexes)
        for session, turn in list(self._waiting.items()):
            self._looks[session] += 1
            looks_max = LOOKS_MAX if heard_at is not None and heard_at > turn.until else UNHEARD_LOOKS_MAX
            if not self._tie(turn, indexes, fits[session], claims) and self._looks[session] >= looks_max:
                self._give_up(turn, indexes)

    def found(self, session: SessionId, indexes: Sequence[BlockIndex]) -> bool:
        """Tie the blocks of the session's turn to it, if they can be told now."""
        fits, claims = self._claims(indexes)
        return self._tie(self._waiting[session], indexes, fits[session], claims)

    def _claims(self, indexes: Sequence[BlockIndex]) -> tuple[dict[SessionId, _Fits], Counter[_Block]]:
        """What each turn may have stored, and of how many turns a block is all that they may have stored."""
        fits = {turn.session: _fitting(turn, indexes) for turn in self}
        return fits, Counter(block for each in fits.values() if len(each) == 1 for block in each)

    def _tie(
        self, turn: Ended, indexes: Sequence[BlockIndex], fits: _Fits, claims: Mapping[_Block, int]
    ) -> bool:
        if len(fits) != 1:
            return False
        ((rank, last), blocks) = next(iter(fits.items()))
        if claims[rank, last] != 1 or not indexes[rank].adopt(turn.name, last, blocks):
            return False
        self.recognised += 1
        self.drop(turn.session)
        return True

    def _give_up(self, turn: Ended, indexes: Sequence[BlockIndex]) -> None:
        """What was known of the session is part of its context at most, and the turn itself is the better evidence."""
        self.drop(turn.session)
        self.unrecognised += 1
        for index in indexes:
            index.forget(turn.name)


def _is_named(turn: Ended, indexes: Sequence[BlockIndex]) -> bool:
    """Whether the engine says itself which blocks are the turn's."""
    return any(index.echoes or (index.echoes_others and turn.named_itself) for index in indexes)


def _has_stored(turn: Ended, indexes: Sequence[BlockIndex]) -> bool:
    """Whether the turn went on for so long that it must have filled a block, as far as is known how large they are.

    One that may have filled none is not looked for: another turn's block would be taken for its own.
    """
    for index in indexes:
        starts, ends = turn.stored(index.block_tokens or 1)
        if starts[-1] < ends[0]:
            return True
    return False


def _fitting(turn: Ended, indexes: Sequence[BlockIndex]) -> _Fits:
    """All that the turn may have stored, on all ranks."""
    fits: _Fits = {}
    if not all(index.unnamed.is_complete(turn.since) for index in indexes):
        return fits
    for rank, index in enumerate(indexes):
        starts, ends = turn.stored(index.block_tokens or 1)
        if index.block_tokens is not None and starts[-1] < ends[0]:
            told = index.unnamed.stored_by(turn.since, starts, ends)
            fits |= {(rank, last): end for last, end in told.items()}
    return fits
