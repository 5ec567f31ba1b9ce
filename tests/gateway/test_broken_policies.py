"""Policies that answer nonsense, live: the turn gets a clear error at once, the log says whose answer it was."""

from collections.abc import Sequence
from typing import Any

import pytest
from fake_engine import fake_engine
from gateway_kit import fronted
from watched import Watched

from tao.core.ids import ReplicaId
from tao.core.ports import Decision, Hold, Place, View
from tao.core.session import Session, Turn
from tao.gateway.config import KeepAlive
from tao.policies import make_policy

HOLD_SECONDS = 0.1
SIGNS = KeepAlive(grace_seconds=0.02, period_seconds=0.02)


class SaysNothing(Watched):
    """Its author forgot to return."""

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        return None  # type: ignore[return-value]


class WeighsLate(Watched):
    """Sound until it decides on what it held."""

    due: float | None = None
    deciding = False

    def place(self, view: View, session: Session, turn: Turn, at: float) -> Place | Hold:
        self.due = at + HOLD_SECONDS
        return Hold("until later")

    def next_planning_at(self, view: View, at: float) -> float | None:
        return self.due

    def lapsed(self, view: View, at: float) -> Sequence[Any]:
        return ()

    def decide(self, view: View, at: float) -> Decision:
        self.due, self.deciding = None, True
        return Decision([(session, ReplicaId(next(iter(view.replicas)))) for session in view.pool])

    def weight_tokens(self, session: Session) -> int:
        return float("nan") if self.deciding else 100  # type: ignore[return-value]


async def test_an_answer_that_is_neither_place_nor_hold_refuses_the_turn(logs: list[dict[str, Any]]) -> None:
    policy = SaysNothing(make_policy("tao"))
    told = "PolicyAnswerError: policy tao: place answered None (NoneType); it must be a Place or a Hold"
    async with fake_engine() as engine, fronted(engine.url, policy=policy) as front:
        front.failure = told
        answer = await front.chat(session="s")
        assert answer.status_code == 500
        assert "its log says why" in answer.json()["error"]["message"]
        assert (await front.http.get("/healthz")).json()["failure"] == told
        assert next(entry["event"] for entry in logs if entry["log_level"] == "error") == "the core failed"
        assert front.held() == 0


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "a stream with its headers out"])
async def test_a_decision_that_fails_does_not_leave_its_turns_waiting(stream: bool) -> None:
    policy = WeighsLate(make_policy("tao"))
    async with fake_engine() as engine, fronted(engine.url, policy=policy, keep_alive=SIGNS) as front:
        front.failure = "PolicyAnswerError: policy tao: weight_tokens answered nan (float); it must be an int of at least 0"
        answer = await front.chat(session="s", stream=stream)
        assert answer.status_code == (200 if stream else 500)
        assert "TAO failed to schedule this request; its log says why" in answer.text
        assert engine.asked == []
        assert front.held() == front.turns() == 0
        assert front.gateway.driver._tickets == {}
