"""The replicas of many tests have some thousand tokens, so that figures can be followed; reserves are as on large ones."""

import pytest

from tao.policies import catalogue
from tao.policies.reserve import FixedReserve


@pytest.fixture(autouse=True)
def reserve_as_on_large_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CappedReserve", FixedReserve)
