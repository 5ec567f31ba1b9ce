"""Pages as a real vLLM 0.32.0 (two requests served) and a real SGLang 0.5.23 gave them on a CPU, shortened."""

import json
from pathlib import Path

from tao.engines import (
    EngineStatus,
    KvSource,
    RankStatus,
    ServedTokens,
    read_slots,
    read_sources,
    read_status,
)
from tao.engines.kv_wire import AllCleared, BlocksStored, KvBatch, KvDecoder

PAGES = Path(__file__).parent / "pages"


def test_the_metrics_of_a_real_vllm() -> None:
    status = read_status((PAGES / "vllm-0.32.0-metrics.txt").read_bytes())
    assert status == EngineStatus(
        engine="vllm",
        capacity_tokens=32_768,
        running=0,
        waiting=0,
        kv_usage=0.0,
        prefix_query_tokens=624.0,
        prefix_hit_tokens=288.0,
        preemptions=0.0,
        prompt_tokens=624.0,
        output_tokens=16.0,
        served=ServedTokens({"0": 624.0}, {"0": 16.0}),
        started_at=1.79597773511e09,
        ranks=(RankStatus("0", 32_768, 0, 0, 0.0),),
    )


def test_where_a_real_vllm_publishes() -> None:
    document = json.loads((PAGES / "vllm-0.32.0-kv-event-sources.json").read_text("utf-8"))
    assert read_sources(document, "127.0.0.1") == (
        KvSource("tcp://127.0.0.1:46763", "tcp://127.0.0.1:47623", "kv-events", 0),
    )


def test_the_metrics_of_a_real_sglang() -> None:
    """After 13 requests; its gauge of retractions is of one step, and its counter of them has counted none."""
    status = read_status((PAGES / "sglang-0.5.23-metrics.txt").read_bytes())
    assert status == EngineStatus(
        engine="sglang",
        capacity_tokens=16_384,
        running=0,
        waiting=0,
        kv_usage=0.0,
        prefix_query_tokens=14_111.0,
        prefix_hit_tokens=356.0,
        prompt_tokens=14_111.0,
        output_tokens=818.0,
        served=ServedTokens({"0": 14_111.0}, {"0": 818.0}),
        ranks=(RankStatus("0", 16_384, 0, 0, 0.0),),
    )


def test_a_real_sglang_that_has_served_nobody_has_counted_nothing() -> None:
    """Its counters come with the first request: a restart shows at once, as figures that have fallen."""
    page = (PAGES / "sglang-0.5.23-metrics.txt").read_text("utf-8")
    fresh = [line for line in page.splitlines() if "sglang:max_total_num_tokens" in line]
    status = read_status("\n".join(fresh).encode())
    assert (status.capacity_tokens, status.served, status.prefix_hit_tokens) == (
        16_384,
        ServedTokens({"0": 0.0}, {"0": 0.0}),
        0.0,
    )


def test_where_a_real_sglang_publishes() -> None:
    document = json.loads((PAGES / "sglang-0.5.23-server-info.json").read_text("utf-8"))
    source = KvSource("tcp://127.0.0.1:30112", "tcp://127.0.0.1:30113", "kv-events", 0)
    assert read_sources(document, "10.0.0.5") == (source,)
    document["kv_events"] |= {"endpoint_host": "*", "dp_size": 2}
    assert read_sources(document, "10.0.0.5") == (
        KvSource("tcp://10.0.0.5:30112", "tcp://10.0.0.5:30113", "kv-events", 0),
        KvSource("tcp://10.0.0.5:30113", "tcp://10.0.0.5:30114", "kv-events", 1),
    )
    for told in (None, {}, {"publisher": "null"}, {"publisher": "zmq", "endpoint_port_base": "x"}):
        assert read_sources({**document, "kv_events": told}, "10.0.0.5") == ()


def test_how_many_requests_a_real_sglang_runs() -> None:
    document = json.loads((PAGES / "sglang-0.5.23-server-info.json").read_text("utf-8"))
    assert read_slots("sglang", document, 1) == 16


def test_the_kv_events_of_a_real_sglang() -> None:
    """The end of an answer to a client that named itself in the body, and a flush."""
    frames = json.loads((PAGES / "sglang-0.5.23-kv-events.json").read_text("utf-8"))
    decoder = KvDecoder()
    stored, flushed = (
        decoder.read([topic.encode(), bytes.fromhex(sequence), bytes.fromhex(payload)])
        for topic, sequence, payload in frames
    )
    assert isinstance(stored, KvBatch)
    assert isinstance(flushed, KvBatch)
    assert (stored.topic, stored.sequence, stored.rank, stored.unknown) == (b"kv-events", 41, 0, ())
    (event,) = stored.events
    assert isinstance(event, BlocksStored)
    assert (len(event.hashes), event.block_tokens, event.medium, event.session) == (
        7,
        1,
        "GPU",
        "its-own-name",
    )
    assert event.parent is not None
    assert flushed.events == (AllCleared(),)
