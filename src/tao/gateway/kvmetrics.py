"""What `/metrics` shows of the watched caches, by replica; summed over its ranks.

It must not know blocks or sessions.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tao.core.ids import ReplicaId
from tao.gateway.gauges import Described

_REPLICA = ("replica",)
WATCH = (
    Described("tao_kv_events_live", "1 while the replica's stream of KV events is followed", _REPLICA),
    Described("tao_kv_events_blocks", "Blocks of the replica's cache that are remembered", _REPLICA),
    Described("tao_kv_events_batches_total", "Batches taken in, replayed ones included", _REPLICA),
    Described("tao_kv_events_gaps_total", "Gaps in the sequence, each of which asked for a replay", _REPLICA),
    Described("tao_kv_events_losses_total", "Times that what was told had to be given up", _REPLICA),
    Described("tao_kv_events_duplicates_total", "Batches that came again", _REPLICA),
    Described("tao_kv_events_restarts_total", "Times that the publisher started anew", _REPLICA),
    Described("tao_kv_events_unreadable_total", "Messages that are no batch", _REPLICA),
    Described("tao_kv_events_other_topics_total", "Messages under another topic", _REPLICA),
    Described(
        "tao_kv_events_recognised_total",
        "Turns whose blocks the engine did not name and that were recognised by their lengths",
        _REPLICA,
    ),
    Described(
        "tao_kv_events_unrecognised_total", "Such turns of which nothing could be told for sure", _REPLICA
    ),
)


class WatchFigures(Protocol):
    """What a watch counts, by the names above without prefix and suffix."""

    def figures(self) -> Iterator[tuple[ReplicaId, Mapping[str, float]]]:
        """One row for each watched replica."""


class WatchSoFar(Collector):
    """The figures of a watch."""

    def __init__(self, watch: WatchFigures) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        rows = list(self._watch.figures())
        for of in WATCH:
            key = of.name.removeprefix("tao_kv_events_").removesuffix("_total")
            yield of.metric(((replica,), figures[key]) for replica, figures in rows)
