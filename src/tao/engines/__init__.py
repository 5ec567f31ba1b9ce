"""Adapters to serving engines: what they tell of themselves, read into one status.

`read_status` picks the adapter by the names on the page. This package must not know decisions, sessions or HTTP
clients: whoever fetches the page hands its bytes in.
"""

from tao.engines.detect import PlainAdapter, adapter_for, read_status
from tao.engines.sglang import SglangAdapter
from tao.engines.status import EngineAdapter, EngineStatus, RankStatus
from tao.engines.vllm import VllmAdapter

__all__ = [
    "EngineAdapter",
    "EngineStatus",
    "PlainAdapter",
    "RankStatus",
    "SglangAdapter",
    "VllmAdapter",
    "adapter_for",
    "read_status",
]
