"""Pages as a real vLLM 0.32.0 gave them (on a CPU, two requests served; histogram buckets left out)."""

import json
from pathlib import Path

from tao.engines import EngineStatus, KvSource, RankStatus, read_sources, read_status

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
        started_at=1.79597773511e09,
        ranks=(RankStatus("0", 32_768, 0, 0, 0.0),),
    )


def test_where_a_real_vllm_publishes() -> None:
    document = json.loads((PAGES / "vllm-0.32.0-kv-event-sources.json").read_text("utf-8"))
    assert read_sources(document, "127.0.0.1") == (
        KvSource("tcp://127.0.0.1:46763", "tcp://127.0.0.1:47623", "kv-events", 0),
    )
