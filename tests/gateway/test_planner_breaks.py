"""The planner's own process killed, hung and raising behind a running gateway: turns go on, and the pages say so.

`test_gateway_planner.py` holds what the planner does with each failure; here nothing is put in its place.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fake_engine import fake_engine, says, usage
from gateway_kit import Front, fronted, until, words
from prometheus_client.parser import text_string_to_metric_families

from tao.core.commands import DispatchTurn, Reason
from tao.planning import PlanWorker

HELD = 16
"""Sessions that wait: too many for the plan to be made without the process (2^12 assignments)."""

RAISES = """
import tao.planning.child as child

def solve(problem, solver, limit=None):
    raise ZeroDivisionError("broken on purpose")

child.warm_up = lambda: None
child.solve = solve
child.main()
"""


def kill(worker: PlanWorker) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)


def stop(worker: PlanWorker) -> None:
    """As if it hung: it is there, and answers nothing."""
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)


def leave(worker: PlanWorker) -> None:
    """It needs no help to fail."""


async def metrics(front: Front) -> dict[str, float]:
    """The samples of `/metrics` that tell of the planner, by name and cause."""
    page = (await front.http.get("/metrics")).text
    return {
        sample.name + sample.labels.get("cause", ""): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("tao_planner")
    }


@pytest.mark.parametrize(
    ("cause", "breaks", "worker", "restarts"),
    [
        ("crash", kill, PlanWorker(), True),
        ("timeout", stop, PlanWorker(), True),
        ("raised", leave, PlanWorker((sys.executable, "-P", "-c", RAISES)), False),
    ],
    ids=["killed", "hung", "raising"],
)
async def test_turns_go_on(
    cause: str,
    breaks: Callable[[PlanWorker], None],
    worker: PlanWorker,
    restarts: bool,
    logs: list[dict[str, Any]],
) -> None:
    gate = asyncio.Event()
    async with (
        fake_engine(capacity_tokens=60_000) as engine,
        fronted(engine.url, solver=worker, plan_deadline_seconds=0.5) as front,
    ):
        engine.then(says("a b", gate=gate, counts=usage(55_000, 10)))
        first = front.chatting(words(55_000), "first", stream=True)
        await until(lambda: engine.now == 1)
        held = [front.chatting(words(3_000 + 10 * number), f"s{number}") for number in range(HELD)]
        await until(lambda: front.held() == HELD)
        breaks(worker)
        gate.set()
        await first
        front.end(front.session("first"))  # type: ignore[arg-type]
        assert [(await turn).status_code for turn in held] == [200] * HELD
        assert Reason.PLANNED in {dispatch.reason for dispatch in front.commands(DispatchTurn)}
        shown = await metrics(front)
        assert shown["tao_planner_failures_total" + cause] >= 1
        assert shown["tao_planner_fallbacks_total"] >= 1
        assert shown["tao_planner_seconds_total"] > 0
        assert (shown["tao_planner_restarts_total"] >= 1) is restarts
        said = [entry for entry in logs if entry["event"] == "planner failed, using the fallback"]
        assert said
        assert all(entry["error"] for entry in said)
