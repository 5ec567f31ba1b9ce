"""What is booked against what the engine says: figures of one moment, none where it does not say, one warning at most."""

import asyncio
from typing import Any

import pytest
from core_kit import World
from fake_engine import fake_engine, says, usage
from gateway_kit import Front, fronted, until, words

from tao.core.events import PrefixNode
from tao.core.ids import ReplicaId
from tao.gateway.member import Sighting
from tao.gateway.reconciling import EXCESS_SECONDS, QUIET_SECONDS, Reconciled, Reconciliation
from tao.policies import make_policy

A = ReplicaId("a")
CAPACITY = 100_000
RESERVE = 512  # what the policy adds to each session
WARNING = "a replica holds more than is booked"


class Looked:
    """A replica that is looked at every second, by a clock in the hand."""

    def __init__(self) -> None:
        self.world = World(make_policy("tao-paper"), a=CAPACITY)
        self.now = 0.0
        self.reconciliation = Reconciliation(self.world.scheduler.view, lambda: self.now)

    def look(self, usage: float | None, seconds: float = 1.0, running: int | None = 1, **more: Any) -> None:
        """Looks that show this, for so many seconds."""
        for _ in range(round(seconds)):
            self.now += 1.0
            seen = Sighting(True, kv_usage=usage, running=running, waiting=None if running is None else 0)
            self.reconciliation.looked(A, seen, more.get("capacity_tokens", CAPACITY), self.now)

    @property
    def row(self) -> Reconciled:
        (row,) = self.reconciliation
        return row


def warnings(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in logs if entry["event"] == WARNING]


def test_what_is_booked_for_turns_and_for_tools_is_told_apart() -> None:
    looked = Looked()
    looked.world.arrive("acts", "t1", 5_000)
    looked.world.finish("t1", 5_000, 1_000)
    looked.world.arrive("runs", "t2", 20_000)
    looked.look(0.3, running=2)
    row = looked.row
    assert (row.turn_tokens, row.tool_tokens, row.turns_in_flight) == (
        20_000 + RESERVE,
        6_000 + RESERVE,
        1,
    )
    assert (row.engine_tokens, row.unbooked_tokens) == (30_000, 10_000 - RESERVE)
    looked.look(0.1)
    assert looked.row.unbooked_tokens == -10_000 - RESERVE


def test_what_turns_and_tools_begin_with_alike_is_booked_for_turns_once() -> None:
    looked = Looked()
    beginning = (PrefixNode("system", 4_000),)
    for name in ("acts", "acts too", "runs"):
        looked.world.arrive(name, f"{name} 1", 5_000, shared_prefix=beginning)
    for name in ("acts", "acts too"):
        looked.world.finish(f"{name} 1", 5_000, 0)
    looked.look(0.05)
    assert (looked.row.turn_tokens, looked.row.tool_tokens) == (5_000 + RESERVE, 2 * (1_000 + RESERVE))
    looked.world.finish("runs 1", 5_000, 0)
    looked.look(0.0)
    assert (looked.row.turn_tokens, looked.row.tool_tokens) == (0, 4_000 + 3 * (1_000 + RESERVE))


def test_parallel_turns_are_booked_for_turns() -> None:
    looked = Looked()
    looked.world.arrive("s", "t1", 5_000)
    looked.world.arrive("s", "t2", 7_000)
    looked.look(0.12)
    free_tokens = looked.world.scheduler.view.free_tokens(A)
    assert (looked.row.turn_tokens, looked.row.tool_tokens) == (CAPACITY - free_tokens, 0)
    assert looked.row.turn_tokens >= 12_000


@pytest.mark.parametrize(
    ("usage_told", "running", "capacity_tokens", "tokens"),
    [(0.5, None, CAPACITY, 50_000), (None, 3, CAPACITY, None), (0.5, 3, None, None)],
)
def test_what_an_engine_does_not_say_has_no_figure(
    usage_told: float | None, running: int | None, capacity_tokens: int | None, tokens: int | None
) -> None:
    looked = Looked()
    looked.look(usage_told, running=running, capacity_tokens=capacity_tokens)
    assert (looked.row.engine_tokens, looked.row.unbooked_tokens, looked.row.running) == (
        tokens,
        tokens,
        running,
    )


def test_an_engine_that_says_nothing_and_one_that_does_not_answer_have_no_row() -> None:
    looked = Looked()
    looked.look(0.5)
    looked.look(None, running=None)
    assert not list(looked.reconciliation)
    looked.look(0.5)
    looked.reconciliation.looked(A, Sighting(False, "timeout", kv_usage=0.5), CAPACITY, 9.0)
    assert not list(looked.reconciliation)
    looked.reconciliation.looked(ReplicaId("unknown"), Sighting(True, kv_usage=0.5), CAPACITY, 9.0)
    assert not list(looked.reconciliation)


def test_the_age_of_the_figures_is_told() -> None:
    looked = Looked()
    looked.look(0.5)
    looked.now += 7.5
    (told,) = looked.reconciliation.describe()
    assert (told["age_seconds"], told["unbooked_tokens"]) == (7.5, 50_000)


def test_an_excess_that_lasts_is_told_once(logs: list[dict[str, Any]]) -> None:
    looked = Looked()
    looked.look(0.11, EXCESS_SECONDS)
    assert not warnings(logs)
    looked.look(0.11, 3 * EXCESS_SECONDS)
    (told,) = warnings(logs)
    assert (told["replica"], told["unbooked_tokens"], told["engine_tokens"]) == ("a", 11_000, 11_000)
    assert told["likely"] == "somebody else uses it: 1 requests where TAO has 0 turns in flight"


def test_contexts_larger_than_booked_are_told_from_somebody_else(logs: list[dict[str, Any]]) -> None:
    looked = Looked()
    looked.world.arrive("s", "t1", 10_000)
    looked.look(0.4, EXCESS_SECONDS + 1)
    (told,) = warnings(logs)
    assert told["unbooked_tokens"] == 30_000 - RESERVE
    assert "larger than TAO takes them for" in told["likely"]


def test_scatter_and_bursts_are_no_excess(logs: list[dict[str, Any]]) -> None:
    looked = Looked()
    looked.look(0.1, 2 * EXCESS_SECONDS)
    for _ in range(5):
        looked.look(0.9, EXCESS_SECONDS)
        looked.look(0.05)
    looked.look(0.9, EXCESS_SECONDS)
    looked.look(None, running=None)
    looked.look(0.9, EXCESS_SECONDS)
    assert not warnings(logs)


def test_one_that_comes_and_goes_is_told_every_ten_minutes_at_most(logs: list[dict[str, Any]]) -> None:
    looked = Looked()
    told = 0
    for _ in range(10):
        looked.look(0.5, EXCESS_SECONDS + 1)
        looked.look(0.0)
        told = len(warnings(logs))
    assert told == 1
    looked.look(0.0, QUIET_SECONDS)
    looked.look(0.5, EXCESS_SECONDS + 1)
    assert len(warnings(logs)) == 2


def test_a_replica_that_is_removed_leaves_no_silence_for_one_of_its_name(logs: list[dict[str, Any]]) -> None:
    looked = Looked()
    looked.look(0.5, EXCESS_SECONDS + 1)
    looked.reconciliation.removed(A)
    looked.look(0.5, EXCESS_SECONDS + 1)
    assert len(warnings(logs)) == 2
    looked.reconciliation.forget(A)  # as where it is not healthy
    looked.look(0.5, EXCESS_SECONDS + 1)
    assert len(warnings(logs)) == 2


# --- through a whole gateway ------------------------------------------------------------------------------------------


async def shown(front: Front) -> dict[str, Any]:
    """The only row of `/state`."""
    (row,) = (await front.state())["reconciliation"] or [{}]
    return dict(row)


async def test_state_and_metrics_show_the_figures_of_the_last_look() -> None:
    gate = asyncio.Event()
    async with fake_engine(capacity_tokens=64_000) as engine, fronted(engine.url) as front:
        engine.page = engine.metrics().replace("4.2e-05", "0.5")
        engine.then(says("a b", gate=gate, counts=usage(1_000, 10)))
        running = front.chatting(words(1_000), "s", stream=True)
        await until(lambda: front.turns() == 1)

        async def seen() -> bool:
            row = await shown(front)
            return row.get("engine_tokens") == 32_000 and row["turns_in_flight"] == 1

        await until(seen)
        row = await shown(front)
        assert row["replica"] == engine.url[7:]
        assert row["booked_for_turns_tokens"] == front.reserved_tokens(engine.url) > 0
        assert row["unbooked_tokens"] == 32_000 - row["booked_for_turns_tokens"]
        assert 0 <= row["age_seconds"] < 5
        page = (await front.http.get("/metrics")).text
        of = f'replica="{engine.url[7:]}"'
        assert f"tao_replica_engine_tokens{{{of}}} 32000.0" in page
        assert f'tao_replica_engine_requests{{{of},state="running"}} 0.0' in page
        booked = float(row["booked_for_turns_tokens"])
        assert f'tao_replica_booked_tokens{{held_by="turns",{of}}} {booked}' in page
        assert f"tao_replica_unbooked_tokens{{{of}}} {32_000 - booked}" in page
        assert f"tao_replica_engine_age_seconds{{{of}}} " in page
        gate.set()
        await running


async def test_a_server_that_tells_nothing_has_no_row() -> None:
    async with fake_engine(has_pages=False) as engine, fronted(engine.url) as front:
        await front.chat("hello", "s")
        assert (await front.state())["reconciliation"] == []
        page = (await front.http.get("/metrics")).text
        assert "tao_replica_engine_tokens{" not in page
        assert "tao_replica_unbooked_tokens{" not in page
