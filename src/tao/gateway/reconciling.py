"""What TAO has booked on a replica against what its engine says is in use, at the moment of each look.

Engines count the KV blocks of running requests only, so their figure stands beside what is booked for turns in flight; what
is booked for sessions whose tools run lies in the prefix cache, if anywhere. Figures of one moment are kept together, with
that moment; where the engine does not say, there is none. It must not know how an engine is asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from tao.core.ids import ReplicaId
from tao.core.ports import View
from tao.gateway.member import Sighting

EXCESS_SHARE = 0.1
"""Of the capacity. Single readings of usage scatter by 0.04 of it (one standard deviation, published for vLLM), and a tenth
is what `tao` leaves free for growth: what is beyond that is missing to somebody."""
EXCESS_SECONDS = 60.0
"""Wall seconds for which every look has to show it: longer than a burst, or an answer that nobody waits for any more."""
QUIET_SECONDS = 600.0
"""Wall seconds between two warnings about one replica."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One replica at one look. None: not told.

    `looked_at`: when its page was asked for (the clock of `Reconciliation`). `engine_tokens`: what its running requests
    hold. `turn_tokens`, `tool_tokens`: what was booked then for turns in flight, and for sessions whose tools ran.
    """

    replica: ReplicaId
    looked_at: float
    capacity_tokens: int | None
    engine_tokens: int | None
    running: int | None
    waiting: int | None
    turn_tokens: int
    tool_tokens: int
    turns_in_flight: int

    @property
    def unbooked_tokens(self) -> int | None:
        """What the engine holds beyond what is booked for turns in flight; negative where it holds less."""
        return None if self.engine_tokens is None else self.engine_tokens - self.turn_tokens

    @property
    def is_excess(self) -> bool:
        """Whether that is more than scatter explains."""
        more = self.unbooked_tokens
        return more is not None and more > EXCESS_SHARE * (self.capacity_tokens or 0)


class Reconciliation:
    """The last figures of each replica, and a warning where an engine holds much more than is booked for long."""

    def __init__(self, view: View, clock: Callable[[], float]) -> None:
        """`clock`: wall seconds, any that does not go back."""
        self.clock = clock
        self._view = view
        self._rows: dict[ReplicaId, Reconciled] = {}
        self._excess_since: dict[ReplicaId, float] = {}
        self._quiet_until: dict[ReplicaId, float] = {}
        self._log = structlog.get_logger("tao.fleet")

    def __iter__(self) -> Iterator[Reconciled]:
        return iter(self._rows.values())

    def looked(
        self, replica: ReplicaId, seen: Sighting, capacity_tokens: int | None, looked_at: float
    ) -> None:
        """Take in what a look has shown. `capacity_tokens`: of the replica, None where nobody knows it."""
        known = self._view.replicas.get(replica)
        told = (seen.kv_usage, seen.running, seen.waiting)
        if not seen.healthy or known is None or told == (None, None, None):
            self.forget(replica)
            return
        unknown = seen.kv_usage is None or capacity_tokens is None
        tool_tokens = self._view.acting_tokens(replica)
        row = self._rows[replica] = Reconciled(
            replica=replica,
            looked_at=looked_at,
            capacity_tokens=capacity_tokens,
            engine_tokens=None if unknown else round((seen.kv_usage or 0.0) * (capacity_tokens or 0)),
            running=seen.running,
            waiting=seen.waiting,
            turn_tokens=known.capacity_tokens - self._view.free_tokens(replica) - tool_tokens,
            tool_tokens=tool_tokens,
            turns_in_flight=known.turns_in_flight,
        )
        self._judge(row)

    def forget(self, replica: ReplicaId) -> None:
        """Nothing is known of it at present."""
        self._rows.pop(replica, None)
        self._excess_since.pop(replica, None)

    def removed(self, replica: ReplicaId) -> None:
        """It is there no more: one of its name that comes later has been warned about by nobody."""
        self.forget(replica)
        self._quiet_until.pop(replica, None)

    def describe(self) -> list[dict[str, object]]:
        """All rows as JSON-ready data."""
        now = self.clock()
        return [
            {
                "replica": row.replica,
                "age_seconds": round(now - row.looked_at, 3),
                "engine_tokens": row.engine_tokens,
                "engine_running": row.running,
                "engine_waiting": row.waiting,
                "booked_for_turns_tokens": row.turn_tokens,
                "booked_for_tools_tokens": row.tool_tokens,
                "turns_in_flight": row.turns_in_flight,
                "unbooked_tokens": row.unbooked_tokens,
            }
            for row in self
        ]

    def _judge(self, row: Reconciled) -> None:
        """Warn once of each excess that lasts, and not again before `QUIET_SECONDS` have passed."""
        if not row.is_excess:
            self._excess_since.pop(row.replica, None)
            return
        since = self._excess_since.setdefault(row.replica, row.looked_at)
        quiet_until = self._quiet_until.get(row.replica, row.looked_at)
        if row.looked_at - since < EXCESS_SECONDS or row.looked_at < quiet_until:
            return
        self._excess_since[row.replica] = float("inf")  # this one has been told
        self._quiet_until[row.replica] = row.looked_at + QUIET_SECONDS
        self._log.warning(
            "a replica holds more than is booked",
            replica=row.replica,
            unbooked_tokens=row.unbooked_tokens,
            engine_tokens=row.engine_tokens,
            booked_for_turns_tokens=row.turn_tokens,
            likely=_likely(row),
        )


def _likely(row: Reconciled) -> str:
    requests = (row.running or 0) + (row.waiting or 0)
    if requests > row.turns_in_flight:
        return (
            f"somebody else uses it: {requests} requests where TAO has {row.turns_in_flight} turns in flight"
        )
    return (
        "its contexts are larger than TAO takes them for: see that its answers carry token counts (tao check)"
    )
