"""Our own counters and histograms show what `prometheus_client`'s would."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector

from tao.gateway.counts import Counted, Timed
from tao.gateway.gauges import Described

BOUNDS = (0.001, 0.5, 1, 300)
LABELLED = Described("tao_things_total", "Things", ("kind", "end"))
PLAIN = Described("tao_others_total", "Others")
SPANS = Described("tao_span_seconds", "Spans")


def shown(*collectors: Collector) -> list[str]:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return without_created(registry)


def without_created(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 9))),
    st.lists(st.sampled_from([0.0, *BOUNDS, 0.0005, 2.5, 1e6])),
)
def test_the_page_is_the_same(counts: list[tuple[str, str, int]], spans: list[float]) -> None:
    theirs = CollectorRegistry()
    their_things = Counter(*LABELLED, registry=theirs)
    their_others = Counter(*PLAIN, registry=theirs)
    their_spans = Histogram(*SPANS, buckets=BOUNDS, registry=theirs)
    things, others, timed = Counted(LABELLED), Counted(PLAIN), Timed(SPANS, BOUNDS)
    for kind, end, by in counts:
        their_things.labels(kind, end).inc(by)
        their_others.inc()
        things.add((kind, end), by)
        others.add()
    for span in spans:
        their_spans.observe(span)
        timed.observe(span)
    assert shown(things, others, timed) == without_created(theirs)


def test_the_rows_of_what_is_gone_are_dropped() -> None:
    things = Counted(LABELLED)
    for kind in ("pod-1", "pod-2", "pod-1"):
        things.add((kind, "x"))
        things.add((kind, "y"))
    things.forget("pod-1")
    things.forget("pod-3")
    assert [line for line in shown(things) if not line.startswith("#")] == [
        'tao_things_total{end="x",kind="pod-2"} 1.0',
        'tao_things_total{end="y",kind="pod-2"} 1.0',
    ]
