"""An event that cannot describe anything that happened is refused when it is made."""

from math import inf, nan

import pytest

from tao.core.events import (
    CapacityChanged,
    EventError,
    PrefixObserved,
    ReplicaJoined,
    ToolCall,
    ToolExpected,
    TurnArrived,
    TurnProgress,
    Urgency,
    Usage,
    WakeUp,
)
from tao.core.ids import ReplicaId, SessionId, TurnId


@pytest.mark.parametrize("at", [inf, -inf, nan])
def test_time_must_be_finite(at: float) -> None:
    with pytest.raises(EventError, match="must be finite"):
        WakeUp(at)
    with pytest.raises(EventError, match="must be finite"):
        TurnProgress(at, TurnId("t"), 1)


def test_token_counts_must_not_be_negative() -> None:
    with pytest.raises(EventError, match="turn t: negative prompt_tokens -1"):
        TurnArrived(0.0, TurnId("t"), SessionId("s"), -1)
    with pytest.raises(EventError, match="turn t: negative output_tokens -2"):
        TurnProgress(0.0, TurnId("t"), -2)
    with pytest.raises(EventError, match="replica a: negative capacity_tokens -3"):
        ReplicaJoined(0.0, ReplicaId("a"), -3)
    with pytest.raises(EventError, match="replica a: negative capacity_tokens -4"):
        CapacityChanged(0.0, ReplicaId("a"), -4)
    with pytest.raises(EventError, match="session s: negative tokens -5"):
        PrefixObserved(0.0, ReplicaId("a"), SessionId("s"), -5)


@pytest.mark.parametrize("slots", [0, -1])
def test_a_replica_takes_at_least_one_session(slots: int) -> None:
    with pytest.raises(EventError, match=f"replica a: {slots} slots; it needs at least one"):
        ReplicaJoined(0.0, ReplicaId("a"), 1_000, slots=slots)
    assert ReplicaJoined(0.0, ReplicaId("a"), 1_000, slots=1).slots == 1


@pytest.mark.parametrize("counts", [(-1, 0, None), (0, -1, None), (0, 0, -1)])
def test_usage_must_not_be_negative(counts: tuple[int, int, int | None]) -> None:
    with pytest.raises(EventError, match="negative token count"):
        Usage(*counts)


@pytest.mark.parametrize("seconds", [-1.0, inf, nan])
def test_what_a_tool_says_of_its_time_must_be_a_time(seconds: float) -> None:
    with pytest.raises(EventError, match="tool bash: sleep_seconds must be finite and >= 0"):
        ToolCall("bash", sleep_seconds=seconds)
    with pytest.raises(EventError, match="tool bash: timeout_seconds must be finite and >= 0"):
        ToolCall("bash", timeout_seconds=seconds)


def test_a_promised_return_must_be_finite() -> None:
    with pytest.raises(EventError, match="session s: return_at must be finite"):
        ToolExpected(0.0, SessionId("s"), inf)


@pytest.mark.parametrize("deadline_at", [inf, -inf, nan])
def test_a_deadline_must_be_finite(deadline_at: float) -> None:
    with pytest.raises(EventError, match="deadline_at must be finite"):
        Urgency(deadline_at=deadline_at)
    assert Urgency(priority=1).deadline_at is None
