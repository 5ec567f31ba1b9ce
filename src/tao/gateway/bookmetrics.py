"""What `/metrics` shows of bookings against the engines' own figures, by replica: those of the last look, and its age.

It must not know how they are compared.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tao.gateway.gauges import Described, Rows
from tao.gateway.reconciling import Reconciliation

BOOKED = (
    Described(
        "tao_replica_engine_tokens",
        "KV tokens that the engine's running requests hold, by its own page when last looked at",
        ("replica",),
    ),
    Described(
        "tao_replica_engine_requests",
        "Requests on the engine, by the same page: running, waiting",
        ("replica", "state"),
    ),
    Described("tao_replica_engine_age_seconds", "Wall seconds since that page was asked for", ("replica",)),
    Described(
        "tao_replica_booked_tokens",
        "Reservations at that moment: for turns in flight, and for sessions whose tools ran",
        ("replica", "held_by"),
    ),
    Described(
        "tao_replica_unbooked_tokens",
        "What the engine holds beyond what is booked for turns in flight; negative where it holds less",
        ("replica",),
    ),
)


class BookedSoFar(Collector):
    """The figures of a reconciliation; no row where an engine does not say."""

    def __init__(self, reconciliation: Reconciliation) -> None:
        self._reconciliation = reconciliation

    def collect(self) -> Iterator[Metric]:
        rows = self._rows()
        yield from (of.metric(rows[of.name]) for of in BOOKED)

    def _rows(self) -> dict[str, Rows]:
        known, now = list(self._reconciliation), self._reconciliation.clock()
        requests = [
            ((row.replica, state), count)
            for row in known
            for state, count in (("running", row.running), ("waiting", row.waiting))
            if count is not None
        ]
        booked = [
            ((row.replica, holder), tokens)
            for row in known
            for holder, tokens in (("turns", row.turn_tokens), ("tools", row.tool_tokens))
        ]
        return {
            "tao_replica_engine_tokens": [
                ((row.replica,), row.engine_tokens) for row in known if row.engine_tokens is not None
            ],
            "tao_replica_engine_requests": requests,
            "tao_replica_engine_age_seconds": [((row.replica,), now - row.looked_at) for row in known],
            "tao_replica_booked_tokens": booked,
            "tao_replica_unbooked_tokens": [
                ((row.replica,), row.unbooked_tokens) for row in known if row.unbooked_tokens is not None
            ],
        }
