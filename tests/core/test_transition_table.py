"""Every row of the transition table is walked, to each phase that it names; every pair without a row does nothing."""

from collections.abc import Callable, Mapping
from itertools import product

import pytest
from core_kit import World

from tao.core import SchedulerSettings
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    SessionEnded,
    ToolBegan,
    ToolCall,
    ToolExpected,
    ToolFinished,
    ToolsMeasured,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnProgress,
    TurnStopped,
    WeightsUpdateBegan,
)
from tao.core.ids import SessionId, TurnId
from tao.core.phases import Absent, Acting, Away, Closed, Running, Stopping, Waiting
from tao.core.transitions import (
    TABLE,
    ChildrenEnded,
    Expired,
    Interrupted,
    Lapsed,
    PhaseType,
    Placed,
    Refused,
    Stimulus,
    mermaid,
    row,
)
from tao.policies import make_policy

Step = Callable[[World], object]
SETTINGS = SchedulerSettings(held_turns_max=2)


# --- how session "s" gets into each phase; its turns are t1, t2, ... ---------------------------------------------------


def absent(world: World) -> None:
    """Nothing has happened yet."""


def no_replica(world: World) -> None:
    world.lose("a")


def full_pool(world: World) -> None:
    world.lose("a")
    world.arrive("x", "x1")
    world.arrive("y", "y1")


def waiting(world: World) -> None:
    world.lose("a")
    world.arrive("s", "t1")


def waiting_twice(world: World) -> None:
    waiting(world)
    world.arrive("s", "t2")


def waiting_for_room(world: World) -> None:
    world.arrive("x", "x1", 9_000)
    world.arrive("s", "t1", 1_000)


def waiting_again(world: World) -> None:
    acting(world)
    world.lose("a")
    world.arrive("s", "t2")


def waiting_for_weights(world: World) -> None:
    acting(world)
    world.send(WeightsUpdateBegan(world.at, world.at + 60))
    world.arrive("s", "t2")


def running(world: World) -> None:
    world.arrive("s", "t1")


def running_again(world: World) -> None:
    acting(world)
    world.arrive("s", "t2")


def running_twice(world: World) -> None:
    world.arrive("s", "t1")
    world.arrive("s", "t2")


def running_beside_stopping(world: World) -> None:
    running_twice(world)
    world.leave("t2")


def running_ended(world: World) -> None:
    running(world)
    world.end("s")


def stopping(world: World) -> None:
    running(world)
    world.leave("t1")


def stopping_again(world: World) -> None:
    running_again(world)
    world.leave("t2")


def stopping_twice(world: World) -> None:
    running_beside_stopping(world)
    world.leave("t1")


def stopping_ended(world: World) -> None:
    stopping(world)
    world.end("s")


def acting(world: World) -> None:
    running(world)
    world.finish("t1")


def acting_for_a_child(world: World) -> None:
    acting(world)
    world.arrive("c", "c1", parent="s")
    world.finish("c1")


def away_for_a_child(world: World) -> None:
    acting_for_a_child(world)
    world.arrive("x", "x1", 9_000)
    world.after(120).wake()


def acting_nowhere(world: World) -> None:
    acting(world)
    world.lose("a")


def acting_homeless(world: World) -> None:
    acting_nowhere(world)
    world.join("a", 10_000)


def acting_overcommitted(world: World) -> None:
    acting(world)
    world.resize("a", 1_000)


def acting_beside_a_full_pool(world: World) -> None:
    acting(world)
    full_pool(world)


def closed(world: World) -> None:
    acting(world)
    world.end("s")


def away(world: World) -> None:
    """Its last turn did not finish."""
    running_again(world)
    world.fail("t2")


def away_in_a_tool(world: World) -> None:
    """Overdue beyond belief while another waits."""
    acting_overdue(world)
    world.wake()


def away_beside_a_full_pool(world: World) -> None:
    away(world)
    full_pool(world)


def away_nowhere(world: World) -> None:
    away(world)
    world.lose("a")


def acting_overdue(world: World) -> None:
    acting(world)
    world.arrive("x", "x1", 9_000)
    world.after(120)


def plan(world: World) -> None:
    [compute] = world.wake()
    world.answer(compute, ("s", "a"))  # type: ignore[arg-type]  # a ComputePlan, or the test fails here


def rejoin(world: World) -> None:
    world.join("a", 10_000)
    plan(world)


CASES: Mapping[tuple[PhaseType, Stimulus, PhaseType], tuple[Step, Step]] = {
    (Absent, TurnArrived, Running): (absent, lambda w: w.arrive("s", "t1")),
    (Absent, TurnArrived, Waiting): (no_replica, lambda w: w.arrive("s", "t1")),
    (Absent, TurnArrived, Absent): (full_pool, lambda w: w.arrive("s", "t1")),
    (Waiting, TurnArrived, Waiting): (waiting, lambda w: w.arrive("s", "t2")),
    (Waiting, TurnArrived, Running): (waiting_for_room, lambda w: w.arrive("s", "t2", 20_000)),
    (Waiting, ClientLeft, Waiting): (waiting_twice, lambda w: w.leave("t1")),
    (Waiting, ClientLeft, Away): (waiting_again, lambda w: w.leave("t2")),
    (Waiting, ClientLeft, Closed): (waiting, lambda w: w.leave("t1")),
    (Waiting, SessionEnded, Closed): (waiting, lambda w: w.end("s")),
    (Waiting, Placed, Running): (waiting, rejoin),
    (Waiting, Interrupted, Waiting): (waiting_for_weights, lambda w: w.lose("a")),
    (Waiting, Refused, Away): (waiting_again, lambda w: w.after(30).wake()),
    (Waiting, Refused, Closed): (waiting, lambda w: w.after(30).wake()),
    (Running, TurnArrived, Running): (running, lambda w: w.arrive("s", "t2")),
    (Running, FirstToken, Running): (running, lambda w: w.first_token("t1")),
    (Running, TurnProgress, Running): (running, lambda w: w.progress("t1", 64)),
    (Running, TurnFinished, Running): (running_twice, lambda w: w.finish("t1")),
    (Running, TurnFinished, Stopping): (running_beside_stopping, lambda w: w.finish("t1")),
    (Running, TurnFinished, Acting): (running, lambda w: w.finish("t1")),
    (Running, TurnFinished, Closed): (running_ended, lambda w: w.finish("t1")),
    (Running, TurnFailed, Running): (running_twice, lambda w: w.fail("t1")),
    (Running, TurnFailed, Stopping): (running_beside_stopping, lambda w: w.fail("t1")),
    (Running, TurnFailed, Away): (running_again, lambda w: w.fail("t2")),
    (Running, TurnFailed, Closed): (running_ended, lambda w: w.fail("t1")),
    (Running, TurnStopped, Running): (running_twice, lambda w: w.stopped("t1")),
    (Running, TurnStopped, Stopping): (running_beside_stopping, lambda w: w.stopped("t1")),
    (Running, TurnStopped, Away): (running_again, lambda w: w.stopped("t2")),
    (Running, TurnStopped, Closed): (running_ended, lambda w: w.stopped("t1")),
    (Running, ClientLeft, Running): (running_twice, lambda w: w.leave("t1")),
    (Running, ClientLeft, Stopping): (running, lambda w: w.leave("t1")),
    (Running, SessionEnded, Running): (running, lambda w: w.end("s")),
    (Stopping, TurnArrived, Running): (stopping, lambda w: w.arrive("s", "t2")),
    (Stopping, FirstToken, Stopping): (stopping, lambda w: w.first_token("t1")),
    (Stopping, TurnProgress, Stopping): (stopping, lambda w: w.progress("t1", 64)),
    (Stopping, TurnFinished, Stopping): (stopping_twice, lambda w: w.finish("t1")),
    (Stopping, TurnFinished, Acting): (stopping, lambda w: w.finish("t1")),
    (Stopping, TurnFinished, Closed): (stopping_ended, lambda w: w.finish("t1")),
    (Stopping, TurnFailed, Stopping): (stopping_twice, lambda w: w.fail("t1")),
    (Stopping, TurnFailed, Away): (stopping_again, lambda w: w.fail("t2", retryable=True)),
    (Stopping, TurnFailed, Closed): (stopping_ended, lambda w: w.fail("t1")),
    (Stopping, TurnStopped, Stopping): (stopping_twice, lambda w: w.stopped("t1")),
    (Stopping, TurnStopped, Away): (stopping_again, lambda w: w.stopped("t2")),
    (Stopping, TurnStopped, Closed): (stopping_ended, lambda w: w.stopped("t1")),
    (Stopping, SessionEnded, Stopping): (stopping, lambda w: w.end("s")),
    (Acting, TurnArrived, Waiting): (acting_nowhere, lambda w: w.arrive("s", "t2")),
    (Acting, TurnArrived, Running): (acting, lambda w: w.arrive("s", "t2")),
    (Acting, TurnArrived, Acting): (acting_beside_a_full_pool, lambda w: w.arrive("s", "t2")),
    (Acting, ToolFinished, Acting): (acting, lambda w: w.tool_finished("s")),
    (Acting, ToolExpected, Acting): (acting, lambda w: w.tool_expected("s", 5)),
    (Acting, ToolBegan, Acting): (acting, lambda w: w.tool_began("s", "make")),
    (Acting, ToolsMeasured, Acting): (acting, lambda w: w.measured("s", bash=1)),
    (Acting, ChildrenEnded, Acting): (acting_for_a_child, lambda w: w.end("c")),
    (Acting, SessionEnded, Closed): (acting, lambda w: w.end("s")),
    (Acting, Placed, Acting): (acting_homeless, plan),
    (Acting, Interrupted, Acting): (acting_overcommitted, lambda w: w.wake()),
    (Acting, Lapsed, Away): (acting_overdue, lambda w: w.wake()),
    (Acting, Expired, Closed): (acting, lambda w: w.after(600).wake()),
    (Away, TurnArrived, Waiting): (away_nowhere, lambda w: w.arrive("s", "t3")),
    (Away, TurnArrived, Running): (away, lambda w: w.arrive("s", "t3")),
    (Away, TurnArrived, Away): (away_beside_a_full_pool, lambda w: w.arrive("s", "t3")),
    (Away, ToolFinished, Acting): (away_in_a_tool, lambda w: w.tool_finished("s")),
    (Away, ToolExpected, Acting): (away_in_a_tool, lambda w: w.tool_expected("s", 5)),
    (Away, ToolBegan, Acting): (away_in_a_tool, lambda w: w.tool_began("s", "make")),
    (Away, ToolsMeasured, Away): (away_in_a_tool, lambda w: w.measured("s", bash=1)),
    (Away, ChildrenEnded, Acting): (away_for_a_child, lambda w: w.end("c")),
    (Away, SessionEnded, Closed): (away, lambda w: w.end("s")),
    (Away, Expired, Closed): (away, lambda w: w.after(600).wake()),
}


def new_world() -> World:
    return World(make_policy("tao"), SETTINGS, a=10_000)


def phase_of(world: World, *, before: PhaseType | None = None) -> PhaseType:
    if world.knows("s"):
        return type(world.session("s").phase)
    return Absent if before is None or before is Absent else Closed


def id_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


def test_every_row_and_each_of_its_targets_has_a_case() -> None:
    assert set(CASES) == {
        (phase, stimulus, target) for (phase, stimulus), targets in TABLE.items() for target in targets
    }


@pytest.mark.parametrize(("phase", "stimulus", "target"), CASES, ids=id_of)
def test_the_row_leads_where_the_table_says(phase: PhaseType, stimulus: Stimulus, target: PhaseType) -> None:
    world = new_world()
    arrange, act = CASES[phase, stimulus, target]
    arrange(world)
    assert phase_of(world) is phase
    ignored = dict(world.ignored)
    act(world)
    assert phase_of(world, before=phase) is target
    assert world.ignored == ignored


# --- pairs without a row -----------------------------------------------------------------------------------------------

ARRANGED: Mapping[PhaseType, Step] = {
    Absent: absent,
    Waiting: waiting,
    Running: running,
    Stopping: stopping,
    Acting: acting,
    Away: away,
    Closed: closed,
}
TURN, SESSION = TurnId("t1"), SessionId("s")
FROM_OUTSIDE: tuple[Event, ...] = (
    FirstToken(0.0, TURN),
    TurnProgress(0.0, TURN, 64),
    TurnFinished(0.0, TURN),
    TurnFailed(0.0, TURN, "500", retryable=True),
    TurnStopped(0.0, TURN),
    ClientLeft(0.0, TURN),
    ToolFinished(0.0, SESSION),
    ToolExpected(0.0, SESSION, 5.0),
    ToolBegan(0.0, SESSION, ToolCall("bash")),
    ToolsMeasured(0.0, SESSION, (("bash", 1.0),)),
    SessionEnded(0.0, SESSION),
)
WITHOUT_A_ROW = [
    (phase, event) for phase, event in product(ARRANGED, FROM_OUTSIDE) if row(phase, type(event)) is None
]


def state_of(world: World) -> object:
    snapshot = world.scheduler.snapshot()
    del snapshot["ignored"]
    return snapshot, world.scheduler.next_wakeup(), dict(world.scheduler.view.turns)


@pytest.mark.parametrize(
    ("phase", "event"), WITHOUT_A_ROW, ids=lambda v: id_of(v) if isinstance(v, type) else type(v).__name__
)
def test_a_pair_without_a_row_is_counted_and_changes_nothing(phase: PhaseType, event: Event) -> None:
    world = new_world()
    ARRANGED[phase](world)
    before, ignored = state_of(world), world.ignored
    assert world.send(event) == []
    assert state_of(world) == before
    name = type(event).__name__
    assert world.ignored == {**ignored, name: ignored.get(name, 0) + 1}


def test_the_diagram_shows_each_arrow_of_the_table_once() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == len(set(lines))
    arrows = {tuple(line.split(":")[0].split()) for line in lines[1:]}
    wanted = {
        ("[*]" if phase is Absent else phase.__name__, "-->", target.__name__)
        for (phase, _), targets in TABLE.items()
        for target in targets
        if target not in (Absent, phase)
    }
    assert arrows == wanted | {("Closed", "-->", "[*]")}
