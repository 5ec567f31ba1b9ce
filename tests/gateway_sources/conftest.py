"""What the gateway logs is kept for the test that wants to see it, and not printed."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[dict[str, Any]]]:
    """The log entries of this test, as dictionaries."""
    with structlog.testing.capture_logs() as entries:
        yield entries  # type: ignore[misc]
