"""Fixtures of the replay tests."""

from collections.abc import AsyncIterator

import pytest

from tests.replay.fake_endpoint import FakeEndpoint, serving


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with serving(FakeEndpoint()) as running:
        yield running
