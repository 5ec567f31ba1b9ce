"""How a turn with a known session id relates to what the session said before: the rule of main lines.

A session's *main line* is the chain of prompts that extend one another. The rule, first match wins:

1. The client says so: an auxiliary or compaction request is a side turn, a "context was compacted" header is
a reset. 2. First turn of the session: main. 3. It shares at least half of the main line's messages, by size
(an extension, a retry, an edited tail): main. 4. It extends another remembered line of the session: reset if
that line is the longer one (the client is back on it),
   else a side turn (a sub-agent, a second title request).
5. Same root (model, tools, system prompt), yet most of the history is gone: reset (compaction, a cleared
context). 6. Another root: a side turn if it lacks the tools that the main line has, or, with the tools alike,
is shorter than
   half of the main line (a title, a summary); otherwise a reset (tools, system prompt or model changed for
   good).

A line is kept as a few digests (at most 1 KiB a session), never as text. It must not know clients or tables.
"""

import struct
from dataclasses import dataclass, field

import msgspec

from tao.core.events import TurnKind
from tao.gateway.wire.prefix import DIGEST_BYTES, TEXT_BLOCK_BYTES, PromptChain, digest

CHECKPOINTS_MAX = 40
SIDE_LINES_MAX = 3
SIDE_CHECKPOINTS_MAX = 6

_CHECKPOINT = struct.Struct(f"<II{DIGEST_BYTES}s")


class Continuation(msgspec.Struct, frozen=True):
    """How a turn relates to its session.

    `shared_bytes` of the prompt's text are a prefix of the line it continues; `reason` is a short phrase for
    logs.
    """

    kind: TurnKind
    shared_bytes: int
    reason: str


class Line(msgspec.Struct, frozen=True):
    """One chain of prompts: root, size, and checkpoints (message number, bytes, digest) packed, oldest first."""

    root: bytes
    root_bytes: int
    has_tools: bool
    text_bytes: int
    checkpoints: bytes
    tail_bytes: int = 0
    tail_digest: bytes = b""

    @classmethod
    def of(cls, chain: PromptChain, checkpoints_max: int = CHECKPOINTS_MAX) -> "Line":
        """The line whose latest prompt is `chain`, keeping the newest checkpoints and a thinned history."""
        numbers = _thinned(len(chain.digests), checkpoints_max)
        packed = b"".join(
            _CHECKPOINT.pack(number, min(chain.sizes[number], 2**32 - 1), chain.digests[number])
            for number in numbers
        )
        tail_digest = digest(chain.tail) if chain.tail else b""
        return cls(
            chain.root,
            chain.root_bytes,
            chain.has_tools,
            chain.text_bytes,
            packed,
            len(chain.tail),
            tail_digest,
        )

    def shared_bytes(self, chain: PromptChain) -> int:
        """How much of `chain` is a prefix it shares with this line, in bytes of text; 0 under another root."""
        if chain.root != self.root:
            return 0
        newest = True
        for offset in range(len(self.checkpoints) - _CHECKPOINT.size, -1, -_CHECKPOINT.size):
            number, size, mark = _CHECKPOINT.unpack_from(self.checkpoints, offset)
            if number < len(chain.digests) and chain.digests[number] == mark:
                whole = newest and self._tail_matches(chain, number + 1)
                return self.text_bytes if whole else int(size)
            newest = False
        if not self.checkpoints and self._tail_matches(chain, 0):
            return self.text_bytes
        return chain.root_bytes

    def continued_by(self, chain: PromptChain) -> int | None:
        """The bytes shared, where `chain` goes on from at least half of this line's messages, by size; else
        None.
        """
        shared = self.shared_bytes(chain)
        if shared and 2 * (shared - self.root_bytes) >= self.text_bytes - self.root_bytes:
            return shared
        return None

    def _tail_matches(self, chain: PromptChain, messages: int) -> bool:
        """Whether the text left over after the last whole block goes on unchanged (text prompts only)."""
        if not self.tail_bytes:
            return True
        start = messages * TEXT_BLOCK_BYTES
        return digest(chain.text[start : start + self.tail_bytes]) == self.tail_digest


def _thinned(messages: int, checkpoints_max: int) -> list[int]:
    """Message numbers to keep: the newest half, and the rest spread evenly over what is older."""
    if messages <= checkpoints_max:
        return list(range(messages))
    newest = (checkpoints_max + 1) // 2
    spread = checkpoints_max - newest
    older = messages - newest
    return [older * step // spread for step in range(spread)] + list(range(older, messages))


@dataclass(slots=True)
class SessionLines:
    """The main line of one session and a few others it had lately."""

    main: Line | None = None
    others: list[Line] = field(default_factory=list)

    def place(self, chain: PromptChain, *, declared: TurnKind | None = None) -> Continuation:
        """Decide what a turn with this prompt is, and remember it. `declared` is what the client itself said."""
        if declared is TurnKind.SIDE:
            shared = 0 if self.main is None else self.main.shared_bytes(chain)
            return Continuation(TurnKind.SIDE, shared, "the client marked it as auxiliary")
        if self.main is None:
            self.main = Line.of(chain)
            return Continuation(TurnKind.MAIN, 0, "first turn of the session")
        if declared is TurnKind.RESET:
            return self._reset(self.main, chain, "the client said that its context was compacted")
        shared_or_none = self.main.continued_by(chain)
        if shared_or_none is not None:
            self.main = Line.of(chain)
            return Continuation(TurnKind.MAIN, shared_or_none, "extends the main line")
        return self._back_on(self.main, chain) or self._off(self.main, chain)

    def _back_on(self, main: Line, chain: PromptChain) -> Continuation | None:
        """Rule 4: the turn continues a line that was not the main one lately."""
        for index, line in enumerate(self.others):
            shared = line.continued_by(chain)
            if shared is None:
                continue
            if line.text_bytes < main.text_bytes:
                self.others[index] = Line.of(chain, SIDE_CHECKPOINTS_MAX)
                return Continuation(TurnKind.SIDE, shared, "continues a side line of the session")
            self.others.pop(index)
            self._remember(main)
            self.main = Line.of(chain)
            # For the cache it is another context than the one before, so nothing that was known of that one counts.
            return Continuation(TurnKind.RESET, shared, "back on a longer line of the session")
        return None

    def _off(self, main: Line, chain: PromptChain) -> Continuation:
        """Rules 5 and 6: the turn continues nothing that is remembered."""
        if chain.root == main.root:
            return self._reset(main, chain, "same system prompt and tools, but most of the history is gone")
        if main.has_tools and not chain.has_tools:
            return self._side(chain, "another system prompt, and without the tools of the main line")
        if main.has_tools == chain.has_tools and 2 * chain.text_bytes < main.text_bytes:
            return self._side(chain, "another system prompt or tools, and much shorter than the main line")
        return self._reset(main, chain, "another system prompt, model or tools")

    def _side(self, chain: PromptChain, reason: str) -> Continuation:
        self._remember(Line.of(chain, SIDE_CHECKPOINTS_MAX))
        return Continuation(TurnKind.SIDE, 0, reason)

    def _reset(self, main: Line, chain: PromptChain, reason: str) -> Continuation:
        shared = main.shared_bytes(chain)
        self._remember(main)
        self.main = Line.of(chain)
        return Continuation(TurnKind.RESET, shared, reason)

    def _remember(self, line: Line) -> None:
        keep = SIDE_CHECKPOINTS_MAX * _CHECKPOINT.size
        self.others.insert(0, msgspec.structs.replace(line, checkpoints=line.checkpoints[-keep:]))
        del self.others[SIDE_LINES_MAX:]
