"""Which engine a metrics page is from.

Told by the prefix of its metric names alone; a page with neither prefix belongs to a server that tells nothing TAO can
use. It must not know HTTP.
"""

from tao.engines import sglang, vllm
from tao.engines.sglang import SglangAdapter
from tao.engines.status import EngineAdapter, EngineStatus
from tao.engines.vllm import VllmAdapter


class PlainAdapter:
    """An OpenAI-compatible server without a metrics page that TAO can read."""

    name = "unknown"
    health_path = "/v1/models"
    metrics_path = "/metrics"
    flush_path = None

    def read(self, page: bytes) -> EngineStatus:
        """See `EngineAdapter.read`."""
        seen = "is empty" if not page.strip() else "has neither vllm: nor sglang: names"
        return EngineStatus(self.name, problems=(f"metrics page {seen}: capacity and load are unknown",))


def adapter_for(page: bytes) -> EngineAdapter:
    """The adapter that can read `page`."""
    if vllm.PREFIX.encode() in page:
        return VllmAdapter()
    if sglang.PREFIX.encode() in page:
        return SglangAdapter()
    return PlainAdapter()


def read_status(page: bytes) -> EngineStatus:
    """The status on a metrics page of any known engine; never raises."""
    return adapter_for(page).read(page)
