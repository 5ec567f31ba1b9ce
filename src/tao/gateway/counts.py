"""Counters and histograms that cost next to nothing to count in: plain numbers, made into Prometheus' metrics when asked.

For what happens in one thread on every request; `prometheus_client`'s own take a lock and look their labels up each time.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tao.gateway.gauges import Described


class Counted(Collector):
    """A counter for each combination of labels. Without labels it shows from the start."""

    def __init__(self, described: Described) -> None:
        self._described = described
        self._values: dict[tuple[str, ...], float] = {} if described.labels else {(): 0.0}

    def add(self, labels: tuple[str, ...] = (), by: float = 1.0) -> None:
        """Count; `labels` in the order of the description."""
        self._values[labels] = self._values.get(labels, 0.0) + by

    def forget(self, first_label: str) -> None:
        """Drop the rows of what is gone for good."""
        for labels in [labels for labels in self._values if labels[:1] == (first_label,)]:
            del self._values[labels]

    def collect(self) -> Iterator[Metric]:
        yield self._described.metric(self._values.items())


class Timed(Collector):
    """A histogram of seconds. `buckets_seconds`: upper bounds, ascending; above the last one is a bucket of its own."""

    def __init__(self, described: Described, buckets_seconds: Sequence[float]) -> None:
        self._described = described
        self._bounds = tuple(buckets_seconds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Take one span in."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum_seconds += seconds

    def collect(self) -> Iterator[Metric]:
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        family = HistogramMetricFamily(self._described.name, self._described.text)
        family.add_metric((), list(zip(bounds, accumulate(self._counts), strict=True)), self._sum_seconds)
        yield family
