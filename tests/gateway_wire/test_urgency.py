"""Hints in the bodies of clients: what is read, what is bounded, what is not said."""

from typing import Any

import pytest

from tao.core.events import Urgency
from tao.gateway.clock import ModelClock
from tao.gateway.wire.urgency import read_urgency


def agent_hints(**told: Any) -> dict[str, Any]:
    return {"nvext": {"agent_hints": told}}


def agentic_context(**told: Any) -> dict[str, Any]:
    return {"vllm_xargs": {"agentic_context": told}}


@pytest.mark.parametrize(
    ("body", "urgency"),
    [
        (agent_hints(priority=3, osl=200), Urgency(3, None, 200)),
        (agentic_context(priority=-2, expected_output_length=50), Urgency(-2, None, 50)),
        (agent_hints(priority=1e12), Urgency(1000)),
        (agent_hints(priority=-1e300), Urgency(-1000)),
        (agent_hints(priority=2.6), Urgency(3)),
        (agent_hints(osl=1 << 40, priority=1), Urgency(1)),
        (agentic_context(deadline_seconds=-1, priority=1), Urgency(1)),
        (agentic_context(deadline_seconds=1e9, priority=1), Urgency(1)),
    ],
)
def test_what_is_said_within_bounds(body: dict[str, Any], urgency: Urgency) -> None:
    assert read_urgency(body, ModelClock()) == urgency


def test_a_deadline_is_on_the_clock_of_the_model() -> None:
    clock = ModelClock(10.0)
    said = read_urgency(agentic_context(deadline_seconds=60), clock)
    assert said is not None
    assert said.deadline_at == pytest.approx(clock.now() + 600.0, abs=5.0)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"priority": 5},
        {"nvext": None},
        {"nvext": {"agent_hints": []}},
        agent_hints(priority="high", osl=True),
        agent_hints(priority=float("nan")),
        agent_hints(priority=10**400, osl=10**400),
        agentic_context(deadline_seconds="soon"),
        {"vllm_xargs": 3},
    ],
)
def test_what_says_nothing(body: dict[str, Any]) -> None:
    assert read_urgency(body, ModelClock()) is None
