"""Adapters to serving engines: what they tell of themselves, read into one status; and what their KV events tell.

`read_status` picks the adapter by the names on the metrics page; `KvSubscriber` feeds a `KvFollower`. This package must
not know decisions, sessions beyond their names, or HTTP clients: whoever fetches a page hands its bytes in.
"""

from tao.engines.detect import PlainAdapter, adapter_for, read_status
from tao.engines.kv_follow import Heard, KvFollower
from tao.engines.kv_sources import KvSource, reachable, read_sources
from tao.engines.kv_subscriber import KvSubscriber
from tao.engines.sglang import SglangAdapter
from tao.engines.slots import read_slots, slots_paths
from tao.engines.status import EngineAdapter, EngineStatus, RankStatus, ServedTokens
from tao.engines.vllm import VllmAdapter

__all__ = [
    "EngineAdapter",
    "EngineStatus",
    "Heard",
    "KvFollower",
    "KvSource",
    "KvSubscriber",
    "PlainAdapter",
    "RankStatus",
    "ServedTokens",
    "SglangAdapter",
    "VllmAdapter",
    "adapter_for",
    "reachable",
    "read_slots",
    "read_sources",
    "read_status",
    "slots_paths",
]
