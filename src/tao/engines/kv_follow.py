"""Following one stream of KV events: sequence numbers, gaps, repetitions, a publisher that starts anew, silence.

No sockets here: whoever has them hands in frames and asks for a replay where it is told to. A gap that a replay does not
close voids everything that the stream has told (`lost`); an engine that starts anew has an empty cache (`cleared`). The
same frames give the same answers. It must not know sessions beyond their names, nor the network.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from tao.engines.kv_index import BLOCKS_MAX, BlockIndex
from tao.engines.kv_wire import AllCleared, KvBatch, KvDecoder, Unreadable

SILENCE_SECONDS = 5.0
"""A turn that must have stored blocks has ended so long ago, and nothing was heard."""

TAKEN_MAX = 1 << 14
"""Batches that are known again. A publisher repeats none; what was replayed may come once more, being queued by then."""


@dataclass(slots=True)
class Heard:
    """What a stream has told since the last look.

    `tokens`: of each session whose figure may have changed, None where its blocks cannot be told any more. `cleared`: the
    cache was emptied, the last time at `cleared_at` (-inf: it was not). `lost`: why nothing that was told before may be
    relied on. Both come before `tokens`.
    """

    tokens: dict[str, int | None] = field(default_factory=dict)
    cleared: bool = False
    lost: str | None = None
    cleared_at: float = field(default=-inf, compare=False)

    @property
    def voided_at(self) -> float:
        """Until when what was told before is void; -inf: it is not."""
        return inf if self.lost is not None else self.cleared_at


@dataclass(slots=True)
class Figures:
    """Counts since the start, for metrics and for people."""

    batches: int = 0
    duplicates: int = 0
    gaps: int = 0
    replayed: int = 0
    restarts: int = 0
    losses: int = 0
    unreadable: int = 0
    other_topics: int = 0


class KvFollower:
    """One stream, its index, and what is wrong with it. `topic`: None accepts the first that comes. `was_given`: as
    of `BlockIndex`.
    """

    def __init__(
        self,
        topic: str | None = None,
        blocks_max: int = BLOCKS_MAX,
        was_given: Callable[[str], bool] | None = None,
    ) -> None:
        self.index = BlockIndex(blocks_max, was_given)
        self.figures = Figures()
        self.unknown_kinds: Counter[str] = Counter()
        self.last_at: float | None = None
        self.silent = False
        self.last_loss: str | None = None
        self.other_topic = b""
        self._topic = None if topic is None else topic.encode()
        self._decoder = KvDecoder()
        self._next: int | None = None
        self._taken: dict[int, float] = {}  # when the latest batches were published, by sequence
        self._held: KvBatch | None = None
        self._held_at = 0.0
        self._expecting_since: float | None = None
        self._heard = Heard()

    # --- frames in --------------------------------------------------------------------------------------------------

    def receive(self, frames: Sequence[bytes], at: float) -> int | None:
        """A published message at the time `at` (seconds, any clock that does not go back).

        Where batches are missing: the sequence from which to ask for a replay; the message is kept until that has ended
        (`replayed`) or has failed (`replay_failed`), and no other may be handed in before.
        """
        if not self._is_ours(frames):
            return None
        batch = self._decoder.read(frames)
        if isinstance(batch, Unreadable):
            self._unreadable(batch)
            return None
        self._topic = batch.topic
        if self._next is not None and batch.sequence < self._next:
            if self._taken.get(batch.sequence) == batch.at:
                self.figures.duplicates += 1
                return None
            self._restarted(at)
        self.last_at = at
        if self._next is None and batch.sequence:
            self._held, self._held_at = batch, at
            return 0
        if self._next is not None and batch.sequence > self._next:
            self.figures.gaps += 1
            self._held, self._held_at = batch, at
            # With the last one that is known, which shows whether it is the same publisher.
            return max(0, self._next - 1)
        self._apply(batch, at)
        return None

    def replayed(self, frames: Sequence[bytes], at: float | None = None) -> bool:
        """A message of the replay at the time `at` (None: as the one that is kept); True once it has ended."""
        if at is not None:
            self.last_at = at
        batch = self._decoder.read_replayed(frames)
        if batch is None:
            self._resume("the engine does not keep them any more")
            return True
        if isinstance(batch, Unreadable):
            self._unreadable(batch)
            return False
        if self._taken.get(batch.sequence, batch.at) != batch.at:
            self._restarted(self._published(batch))
        if self._next is None or batch.sequence == self._next:
            self.figures.replayed += 1
            self._apply(batch, self._published(batch))
        return False

    def replay_failed(self, why: str) -> None:
        """No replay, or not to its end."""
        self._resume(why)

    def reset(self) -> None:
        """Forget all: the cache was emptied, or another engine is at the other end now."""
        self.index.clear()
        self._heard = Heard()
        self._held = self._expecting_since = None

    # --- silence ----------------------------------------------------------------------------------------------------

    def expect(self, since: float, at: float) -> None:
        """A turn that stored blocks has run from `since` to `at`: an event of it has come, or is due."""
        heard = self.last_at is not None and self.last_at >= since
        if self._expecting_since is None and not heard:
            self._expecting_since = at

    def listen(self, at: float) -> None:
        """To be called now and then: notices that a stream that should speak is silent."""
        since = self._expecting_since
        if since is not None and at - since > SILENCE_SECONDS and not self.silent:
            self.silent = True
            self._lose(f"no KV event came within {SILENCE_SECONDS:g} s of a turn that stored blocks")

    # --- what came of it --------------------------------------------------------------------------------------------

    @property
    def catching_up(self) -> bool:
        """Whether a replay is under way: what the index holds is of the past, and no figure to tell."""
        return self._held is not None

    @property
    def voided_at(self) -> float:
        """As of what the next `take_heard` tells."""
        return self._heard.voided_at

    @property
    def live(self) -> bool:
        """Whether the stream has spoken, and has not fallen silent."""
        return self.last_at is not None and not self.silent

    @property
    def problem(self) -> str | None:
        """What is wrong at present, in words."""
        if self.silent:
            return self.last_loss
        if self.last_at is None and self.figures.other_topics:
            return f"events come under another topic than {self._topic!r}: {self.other_topic!r}"
        return None

    def take_heard(self) -> Heard:
        """What was told since the last call."""
        self._heard.tokens.update(self.index.take_changed())
        heard, self._heard = self._heard, Heard()
        return heard

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_ours(self, frames: Sequence[bytes]) -> bool:
        """Before it is read: what comes under another topic need not be events at all."""
        topic = frames[0] if frames else b""
        if self._topic in {None, topic}:
            return True
        self.figures.other_topics += 1
        self.other_topic = topic[:64]
        return False

    def _apply(self, batch: KvBatch, heard_at: float) -> None:
        self.figures.batches += 1
        self._expecting_since, self.silent = None, False
        self._next = batch.sequence + 1
        self._taken[batch.sequence] = batch.at
        if len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]
        self.unknown_kinds.update(batch.unknown if len(self.unknown_kinds) < 16 else ())
        overflows = self.index.overflows
        for event in batch.events:
            self.index.apply(event, heard_at)
            if isinstance(event, AllCleared):
                self._heard = Heard(cleared=True, lost=self._heard.lost, cleared_at=heard_at)
        if self.index.overflows > overflows:
            self._lose(f"more than {self.index.blocks_max} blocks: all were forgotten", keep_index=True)

    def _resume(self, why: str) -> None:
        """The replay is over: go on with the message that was kept."""
        batch, self._held = self._held, None
        if batch is None:
            return
        if self._next is not None and batch.sequence > self._next:
            self._lose(f"batches {self._next} to {batch.sequence - 1} are missing: {why}")
        if self._next is None or batch.sequence >= self._next:
            self._apply(batch, self._held_at)

    def _published(self, replayed: KvBatch) -> float:
        """When a batch of the replay was published, by our clock: so much before the one that is kept, or after it. What is
        older than a turn is nothing that the turn has stored.
        """
        apart = 0.0 if self._held is None else replayed.at - self._held.at
        return min(self._held_at + apart, self.last_at or 0.0)

    def _restarted(self, at: float) -> None:
        self.figures.restarts += 1
        self.index.clear()
        self._heard = Heard(cleared=True, lost=self._heard.lost, cleared_at=at)
        self._next = None
        self._taken.clear()

    def _unreadable(self, message: Unreadable) -> None:
        """What it would have told is not known, so nothing that was told may be relied on."""
        self.figures.unreadable += 1
        self._lose(f"a message cannot be read: {message.why}")
        if message.sequence is not None and message.sequence == self._next:
            self._next += 1

    def _lose(self, why: str, *, keep_index: bool = False) -> None:
        self.figures.losses += 1
        self.last_loss = why
        self._heard = Heard(cleared=self._heard.cleared, lost=why, cleared_at=self._heard.cleared_at)
        if not keep_index:
            self.index.clear()
