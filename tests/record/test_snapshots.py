"""Recorded decisions are files that the planner's command reads."""

from pathlib import Path

from core_kit import World

from tao.core.commands import ComputePlan
from tao.core.events import WakeUp
from tao.planning.snapshot import read_snapshot
from tao.policies import make_policy, problem_of
from tao.record.snapshots import SnapshotWriter


def _two_that_compete() -> tuple[World, ComputePlan]:
    world = World(make_policy("tao-paper"), a=4_000)
    world.arrive("s", "t1", 3_000)
    world.arrive("r", "u1", 3_000)
    world.finish("t1", 3_000, 10)
    world.end("s")
    [plan] = world.after(1).wake()
    assert isinstance(plan, ComputePlan)
    return world, plan


def test_a_snapshot_is_written_for_each_plan_and_reads_back_as_the_same_problem(tmp_path: Path) -> None:
    world, plan = _two_that_compete()
    writer = SnapshotWriter(tmp_path / "snapshots")
    writer.observe(WakeUp(world.at), [plan])
    [path] = (tmp_path / "snapshots").iterdir()
    assert path.name == "plan-000001.json"
    read, asked = read_snapshot(path.read_bytes()), problem_of(plan.request)
    assert read.knapsacks == asked.knapsacks
    assert [(i.id, i.weight_tokens, dict(i.values)) for i in read.items] == [
        (i.id, i.weight_tokens, dict(i.values)) for i in asked.items
    ]


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    world, plan = _two_that_compete()
    writer = SnapshotWriter(tmp_path, files_max=1)
    writer.observe(WakeUp(world.at), [plan, plan])
    assert (writer.written, writer.skipped) == (1, 1)
    assert len(list(tmp_path.iterdir())) == 1
