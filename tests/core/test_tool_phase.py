"""Tools while they run: begun by the client, measured, and sub-agents whose end is their parent's tool's end."""

from collections.abc import Mapping

import pytest
from core_kit import World
from watched import Watched

from tao.core.events import EventError, ToolCall, ToolsMeasured
from tao.core.facts import ChildStarted, Fact, ToolEnded, ToolMeasured, ToolsNamed, ToolStarted
from tao.core.ids import SessionId
from tao.core.phases import Acting, Away
from tao.policies import make_policy


class Listener(Watched):
    """Remembers what it was told."""

    def of_kind(self, *kinds: type) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kinds)]


@pytest.fixture
def told() -> Listener:
    return Listener(make_policy("round-robin"))


@pytest.fixture
def w(told: Listener) -> World:
    world = World(told, a=100_000)
    world.arrive("s", "t1")
    return world


def acting(w: World) -> Acting:
    phase = w.session("s").phase
    assert isinstance(phase, Acting)
    return phase


def tool_facts(told: Listener) -> list[object]:
    return [
        (type(fact).__name__, [tool.name for tool in fact.tools])
        for fact in told.of_kind(ToolStarted, ToolEnded)
        if isinstance(fact, ToolStarted | ToolEnded)
    ]


# --- begun by the client ------------------------------------------------------------------------------------------------


def test_a_tool_that_no_response_named_is_what_the_session_waits_for(w: World, told: Listener) -> None:
    w.finish("t1", tools=())
    w.after(1).tool_began("s", "search")
    assert acting(w) == Acting((ToolCall("search"),), 0.0, acting(w).home)
    assert told.of_kind(ToolsNamed) == [ToolsNamed(1.0, SessionId("s"), "", (ToolCall("search"),))]
    w.after(4).tool_finished("s")
    assert told.of_kind(ToolEnded) == [ToolEnded(5.0, SessionId("s"), "", (ToolCall("search"),), 5.0)]


def test_a_tool_after_the_last_one_ended_is_a_new_phase(w: World, told: Listener) -> None:
    w.finish("t1", tools=("bash",))
    w.after(2).tool_finished("s")
    w.after(1).tool_began("s", "search")
    assert (acting(w).since, acting(w).finished_at) == (3.0, None)
    w.after(1).arrive("s", "t2")
    assert tool_facts(told) == [
        ("ToolStarted", ["bash"]),
        ("ToolEnded", ["bash"]),
        ("ToolStarted", ["search"]),
        ("ToolEnded", ["search"]),
    ]


def test_tools_of_a_phase_are_bounded(w: World) -> None:
    w.finish("t1", tools=())
    for number in range(70):
        w.tool_began("s", f"tool{number}")
    assert len(acting(w).tools) == 64
    assert w.ignored == {"ToolBegan": 6}


# --- measured -----------------------------------------------------------------------------------------------------------


def measured(told: Listener) -> Mapping[str, float]:
    return {
        fact.tool.name: fact.duration_seconds
        for fact in told.of_kind(ToolMeasured)
        if isinstance(fact, ToolMeasured)
    }


def test_parallel_tools_are_told_one_by_one(w: World, told: Listener) -> None:
    w.finish("t1", tools=("Bash", "Read"))
    w.after(9).measured("s", Bash=8.5, Read=0.1, Unknown=3)
    assert measured(told) == {"Bash": 8.5, "Read": 0.1}


def test_a_tool_that_ran_alone_is_told_by_its_phase_only(w: World, told: Listener) -> None:
    w.finish("t1", tools=("Bash",))
    w.after(9).measured("s", Bash=8.5)
    assert measured(told) == {}


def test_a_measured_duration_must_be_a_time() -> None:
    with pytest.raises(EventError, match=r"tool bash: its seconds must be finite and >= 0, not -1\.0"):
        ToolsMeasured(0.0, SessionId("s"), (("bash", -1.0),))


# --- sub-agents ---------------------------------------------------------------------------------------------------------


def test_the_parents_tool_is_over_when_its_child_has_answered(w: World, told: Listener) -> None:
    w.finish("t1", tools=("Task",))
    w.after(1).arrive("c", "c1", parent="s")
    assert w.session("s").awaits_children
    w.after(1).finish("c1", tools=("bash",))
    w.after(3).arrive("c", "c2", parent="s")
    assert acting(w).finished_at is None
    w.after(1).finish("c2", tools=())
    assert acting(w).finished_at == 6.0
    assert not w.session("s").awaits_children
    assert told.of_kind(ChildStarted) == [ChildStarted(1.0, SessionId("s"), SessionId("c"))]
    assert ToolEnded(6.0, SessionId("s"), "", (ToolCall("Task"),), 6.0) in told.facts


@pytest.mark.parametrize("how", ["released", "failed", "idle"])
def test_a_child_that_is_gone_has_ended(w: World, how: str) -> None:
    w.finish("t1", tools=("Task",))
    w.arrive("c", "c1", parent="s")
    if how == "failed":
        w.after(2).fail("c1")
    else:
        w.finish("c1", tools=("bash",))
    if how == "released":
        w.after(2).end("c")
    elif how == "idle":
        w.after(550).tool_expected("s", 10)  # the parent is heard of, the child is not
        w.after(50).wake()
        assert not w.knows("c")
    assert acting(w).finished_at == w.at


def test_the_last_of_several_children_ends_the_tools(w: World) -> None:
    w.finish("t1", tools=("Task", "Task"))
    w.arrive("c", "c1", parent="s")
    w.finish("c1", tools=())
    assert acting(w).finished_at is None, "the second task has not begun"
    w.arrive("d", "d1", parent="s")
    w.after(2).finish("d1", tools=())
    assert acting(w).finished_at == 2.0


def test_a_tool_beside_the_child_may_run_on(w: World) -> None:
    w.finish("t1", tools=("Task", "bash"))
    w.arrive("c", "c1", parent="s")
    w.finish("c1", tools=())
    assert acting(w).finished_at is None


def test_a_child_of_a_parent_that_does_not_act_is_no_tool(w: World) -> None:
    w.arrive("c", "c1", parent="s")
    assert w.session("s").children == {}
    w.finish("c1", tools=())
    w.finish("t1", tools=("bash",))
    w.tool_finished("s")
    w.arrive("c", "c2", parent="s")
    assert w.session("s").children == {}, "its tools are over already"


def test_a_parent_that_comes_back_waits_for_no_child(w: World) -> None:
    w.finish("t1", tools=("Task",))
    w.arrive("c", "c1", parent="s")
    w.arrive("s", "t2")
    assert not w.session("s").awaits_children
    w.finish("t2", tools=("bash",))
    w.finish("c1", tools=())
    assert acting(w).finished_at is None


def test_a_working_child_keeps_its_parent_from_being_forgotten(w: World) -> None:
    w.finish("t1", tools=("Task",))
    for turn in range(3):
        w.after(300).arrive("c", f"c{turn}", parent="s")
        w.finish(f"c{turn}", tools=("bash",))
        w.wake()
    assert w.knows("s")


def test_a_session_cannot_be_its_own_child(w: World) -> None:
    w.finish("t1", tools=("Task",))
    w.arrive("s", "t2", parent="s")
    w.finish("t2", tools=())
    assert w.session("s").children == {}


def test_children_of_a_phase_are_bounded(w: World) -> None:
    w.finish("t1", tools=("Task",))
    for number in range(300):
        w.arrive(f"c{number}", f"c{number}", 1, parent="s")
    assert len(w.session("s").children) == 256


def test_a_parent_nobody_expects_any_more_is_back_among_the_candidates(w: World) -> None:
    w.finish("t1", tools=("Task",))
    w.arrive("c", "c1", parent="s")
    w.scheduler._context.state.enter(w.session("s"), Away(w.at, (ToolCall("Task"),), 0.0), w.at)
    w.finish("c1", tools=())
    assert (acting(w).home, acting(w).finished_at) == (None, 0.0)


def test_explanations_name_each_evidence_with_source_and_time(w: World) -> None:
    w.finish("t1", tools=("Task",))
    w.after(1).arrive("c", "c1", parent="s")
    w.after(1).tool_expected("s", 7)
    told = w.scheduler.explain(SessionId("s"), 4.0)
    assert told is not None
    asked = {"source": "the response asked for it", "at": 0.0, "age_seconds": 4.0}
    assert told["tool_evidence"] == [
        {
            "source": "promised by the tool interface",
            "at": 2.0,
            "age_seconds": 2.0,
            "returns_in_seconds": 5.0,
        },
        {"source": "sub-agents", "at": 0.0, "age_seconds": 4.0, "children": {"c": "works"}},
        {**asked, "tools": [{"name": "Task", "command_head": ""}]},
    ]
