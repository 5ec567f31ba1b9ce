"""Readiness as the core tells it: tools named late, parallel tools measured one by one, sub-agents at work."""

import pytest
from core_kit import World, of_kind

from tao.core.commands import ComputePlan
from tao.core.events import ToolCall
from tao.policies.credit import HalfLifeCredit
from tao.policies.interruption import LeaseWhileExpected, LongestAwayFirst
from tao.policies.joint import JointPolicy, Parts
from tao.policies.pacing import OnChange
from tao.policies.readiness import ToolReadiness
from tao.policies.returns import Absence, BackoffHistogram
from tao.policies.room import GrowthRoom
from tao.policies.stale import DropChanged

BUILD, READ = ToolCall("build"), ToolCall("read")


class Taught(BackoffHistogram):
    """Remembers its lessons."""

    def __init__(self) -> None:
        super().__init__()
        self.lessons: list[tuple[list[str], float]] = []

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        self.lessons.append(([tool.name for tool in absence.tools], duration_seconds))
        super().learn(absence, duration_seconds)


@pytest.fixture
def predictor() -> Taught:
    made = Taught()
    for _ in range(50):
        made.learn(Absence((BUILD,)), 300.0)
        made.learn(Absence((READ,)), 0.1)
    made.lessons.clear()
    return made


@pytest.fixture
def readiness(predictor: Taught) -> ToolReadiness:
    return ToolReadiness(predictor)


@pytest.fixture
def w(readiness: ToolReadiness) -> World:
    credit = HalfLifeCredit()
    order, lease = LongestAwayFirst(credit, readiness), LeaseWhileExpected(readiness)
    parts = Parts(credit, readiness, order, lease, GrowthRoom(), OnChange(), DropChanged(), "auto")
    world = World(JointPolicy("p", parts), a=100_000)
    world.arrive("s", "t1")
    return world


def ready(w: World, readiness: ToolReadiness) -> int:
    return readiness.ready(w.session("s"), w.at)


def test_tools_that_are_named_later_replace_the_forecast(w: World, readiness: ToolReadiness) -> None:
    w.finish("t1", tools=())
    assert readiness.explain(w.session("s"), w.at)["source"] == "default"
    w.after(0.01).tool_began("s", "read")
    assert readiness.explain(w.session("s"), w.at)["source"] == "history of this tenant"
    assert ready(w, readiness) == 1
    w.after(0.01).tool_began("s", "build")
    assert ready(w, readiness) == 0
    assert readiness.away_seconds(w.session("s"), w.at) > 100.0


def test_what_was_named_later_is_what_the_calibration_counts(w: World, readiness: ToolReadiness) -> None:
    calibration = readiness.judged()
    w.finish("t1", tools=())
    w.after(0.01).tool_began("s", "build")
    w.after(300).tool_finished("s")
    assert list(calibration.by_tool) == ["build"]
    assert calibration.by_tool["build"].covered[1] == 1


def test_measured_parallel_tools_teach_one_by_one_and_not_once_more_together(
    w: World, predictor: Taught
) -> None:
    w.finish("t1", tools=("build", "read"))
    w.after(90).measured("s", build=80.0, read=0.2)
    w.arrive("s", "t2")
    w.finish("t2", tools=())
    w.end("s")
    assert predictor.lessons == [(["build"], 80.0), (["read"], 0.2)]


def test_measured_after_their_end_was_seen_they_still_teach_once(w: World, predictor: Taught) -> None:
    w.finish("t1", tools=("build", "read"))
    w.after(90).tool_finished("s")
    w.after(1).measured("s", build=80.0, read=0.2)
    w.arrive("s", "t2")
    w.finish("t2", tools=("read",))
    w.after(2).arrive("s", "t3")
    assert predictor.lessons == [(["build"], 80.0), (["read"], 0.2), (["read"], 2.0)]


def test_parallel_tools_that_nobody_measures_teach_together(w: World, predictor: Taught) -> None:
    w.finish("t1", tools=("build", "read"))
    w.after(90).arrive("s", "t2")
    w.finish("t2", tools=("read",))
    assert predictor.lessons == [(["build", "read"], 90.0)]
    w.end("s")
    assert predictor.lessons == [(["build", "read"], 90.0)]


def test_a_parent_is_back_when_its_sub_agent_has_ended(w: World, readiness: ToolReadiness) -> None:
    w.finish("t1", tools=("read",))
    assert ready(w, readiness) == 1
    w.after(0.1).arrive("c", "c1", parent="s")
    assert ready(w, readiness) == 0
    w.after(5).tool_expected("s", in_seconds=0.5)
    assert ready(w, readiness) == 0, "nobody returns before the sub-agent does"
    assert readiness.away_seconds(w.session("s"), w.at) == 1.0
    told = readiness.explain(w.session("s"), w.at)
    assert told["source"] == "sub-agents at work"
    assert told["sub_agents"] == ["c"]
    w.after(5).finish("c1", tools=())
    assert ready(w, readiness) == 1
    assert readiness.away_seconds(w.session("s"), w.at) == 0.0


def test_a_parent_gives_its_place_up_to_those_that_wait_and_is_back_with_its_child() -> None:
    readiness = ToolReadiness(Taught())
    credit = HalfLifeCredit()
    order, lease = LongestAwayFirst(credit, readiness), LeaseWhileExpected(readiness)
    parts = Parts(credit, readiness, order, lease, GrowthRoom(), OnChange(), DropChanged(), "auto")
    w = World(JointPolicy("p", parts), a=10_000)
    w.arrive("s", "t1", 8_000)
    w.finish("t1", 8_000, tools=("task",))
    w.after(1).arrive("c", "c1", 8_000, parent="s")
    w.after(14).wake()
    assert w.session("s").home == "a"
    computes = of_kind(w.after(3).wake(), ComputePlan)
    assert w.session("s").home is None
    w.solve(computes[0])
    assert w.session("c").home == "a", "the sub-agent that the parent waits for has its place"
    w.finish("c1", tools=())
    assert ready(w, readiness) == 1


def test_who_gives_way_first_when_nothing_is_known_of_the_tool_or_somebody_else_works(
    predictor: Taught,
) -> None:
    """A human is away longest, a tool that nobody knows as long as the method's default, a quick one not at all."""
    readiness = ToolReadiness(predictor)
    credit = HalfLifeCredit()
    order, lease = LongestAwayFirst(credit, readiness), LeaseWhileExpected(readiness)
    parts = Parts(credit, readiness, order, lease, GrowthRoom(), OnChange(), DropChanged(), "auto")
    w = World(JointPolicy("p", parts), a=100_000)
    for name, tool in (("human", ()), ("build", ("build",)), ("quick", ("read",)), ("parent", ("build",))):
        w.arrive(name, f"{name}-1")
        w.finish(f"{name}-1", tools=tool)
    w.arrive("child", "c1", parent="parent")
    w.tool_expected("parent", in_seconds=2.0)
    w.after(0.1)
    key = {name: order.key(w.session(name), w.at) for name in ("human", "build", "quick", "parent")}
    assert key["build"] < key["parent"] < key["quick"]
    assert key["human"] < key["parent"]
    fresh = ToolReadiness(BackoffHistogram())
    unknown = LongestAwayFirst(credit, fresh)
    assert unknown.key(w.session("human"), w.at) < unknown.key(w.session("build"), w.at)
    assert 1.0 < fresh.away_seconds(w.session("build"), w.at) < 10.0
