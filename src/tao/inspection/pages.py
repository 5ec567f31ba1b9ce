"""What an engine's pages say, read in one way for all that look at engines.

A page that is missing or makes no sense says nothing. It must not know what anybody concludes from it.
"""

from typing import Any

from tao.engines import EngineStatus, read_status
from tao.inspection.client import Answer

METRICS_PATH = "/metrics"
MODELS_PATH = "/v1/models"


def status_on(page: Answer) -> EngineStatus:
    """What the metrics page shows."""
    return read_status(page.body if page.status == 200 else b"")


def models_on(page: Answer) -> list[dict[str, Any]]:
    """The entries of the list of models."""
    listed = page.json.get("data")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
