"""`tao evaluate joint` and what it counts: who is behind the exact decision, in which coordinate, and who never is."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli import main
from tao.planning import Item, Knapsack, Problem, SparseValues, write_snapshot
from tao.report.decisions import COORDINATES, Decision, Difference, decide, quantile, tally

SOLVERS = ("exact", "auto", "dp", "bfd", "greedy")
SUITE = """
kind = "snapshots"
name = "mine"
title = "Mine & <yours>"
description = "A suite for a test."
policies = ["tao"]
solvers = ["exact", "bfd", "greedy"]
[[setting]]
name = "two replicas"
profile = "qwen3-32b-tp2-h100"
traces = ["agents"]
kv_tokens = 50_000
sessions = 30
replicas = [2]
concurrency = [20]
"""


def tao(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", *arguments])


def item(name: str, weight: int, credit: int, ready: int = 0, waited_seconds: float = 0.0) -> Item:
    return Item(name, weight, SparseValues(("a",), {"a": credit}, ready, weight), None, waited_seconds)


def decision(*items: Item, wait_seconds_max: float | None = None) -> Decision:
    return decide("snapshot", Problem((Knapsack("a", 100),), items, wait_seconds_max), SOLVERS)


def test_candidates_are_those_that_fit_alone() -> None:
    alone = decision(item("small", 60, 5), item("large", 101, 9))
    assert (alone.sessions, alone.candidates, alone.has_several) == (2, 1, False)
    apart = decision(item("one", 50, 5), item("two", 50, 9))
    assert (apart.has_several, apart.is_contested("exact")) == (True, False)
    rivals = decision(item("one", 50, 5), item("two", 51, 9))
    assert (rivals.has_several, rivals.is_contested("exact")) == (True, True)


@pytest.mark.parametrize(
    ("items", "bound", "behind"),
    [
        ((item("light", 40, 10), item("heavy", 100, 40)), None, Difference("credit", 0.75)),
        ((item("light", 40, 0, 0), item("heavy", 100, 0, 1)), None, Difference("readiness", 1.0)),
        ((item("light", 40, 0), item("heavy", 100, 0)), None, Difference("footprint", 0.6)),
        ((item("one", 50, 1), item("two", 50, 2)), None, None),
        ((item("light", 40, 9), item("old", 100, 0, 0, 9.0)), 5.0, None),
    ],
)
def test_greedy_is_behind_in_the_first_coordinate_that_differs(
    items: tuple[Item, ...], bound: float | None, behind: Difference | None
) -> None:
    made = decision(*items, wait_seconds_max=bound)
    assert made.violations == ()
    assert made.behind("greedy", "exact") == behind
    assert made.behind("exact", "greedy") is None


def test_decisions_are_counted_by_the_coordinate_that_decides() -> None:
    decisions = [
        decision(item("light", 40, 10), item("heavy", 100, 40)),
        decision(item("light", 40, 0), item("heavy", 100, 0)),
        decision(item("one", 50, 1), item("two", 50, 2)),
    ]
    counted = tally(decisions, "greedy", "exact")
    assert (counted.decisions, counted.worse, counted.equal, counted.ahead) == (3, 2, 1, 0)
    assert [counted.behind[name] for name in COORDINATES] == [0, 1, 0, 1]
    assert counted.shorts == (0.6, 0.75)
    assert tally(decisions, "exact", "greedy").ahead == 2
    assert tally([], "greedy", "exact").worse_share is None
    assert (quantile(counted.shorts, 0.5), quantile(counted.shorts, 1.0), quantile((), 0.5)) == (
        0.75,
        0.75,
        None,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("joint")
    (folder / "mine.toml").write_text(SUITE)
    result = tao(str(folder / "mine.toml"), "--out", str(folder / "reports"), "--processes", "1")
    assert result.exit_code == 0, result.output
    return folder / "reports", result


def test_decisions_of_a_run_past_the_knee(made: tuple[Path, Result]) -> None:
    """What greedy and best-fit-decreasing keep less of, and that the exact decision never does."""
    document = json.loads((made[0] / "mine.json").read_text())
    assert document["reference"] == "exact"
    rows = document["decisions"]
    several = [row for row in rows if row["candidates"] > 1]
    assert len(several) > 5
    assert all(row["solvers"]["exact"]["behind_in"] is None for row in rows)
    assert all(row["solvers"]["exact"]["status"] == "optimal" for row in rows)
    assert any(row["solvers"]["greedy"]["behind_in"] for row in several)
    assert not any(row["solvers"]["greedy"]["behind_in"] for row in rows if row["candidates"] < 2)


def test_a_page_of_one_file(made: tuple[Path, Result]) -> None:
    text = (made[0] / "mine.html").read_text()
    assert "Mine &amp; &lt;yours&gt;" in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', text)
    assert "stands in for it" in text
    for word in ("contested", "Kept less than exact", "behind in credit", "Time and proof", "tao evaluate"):
        assert word in text
    assert "behind exact, of decisions with several candidates" in made[1].output
    assert "to repeat: tao evaluate" in made[1].output


def test_snapshots_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "recorded" / "monday"
    folder.mkdir(parents=True)
    problem = Problem((Knapsack("a", 100),), (item("light", 40, 10), item("heavy", 100, 40)))
    (folder / "plan-000001.json").write_bytes(write_snapshot(problem))
    result = tao(
        "joint", "--snapshots", str(tmp_path / "recorded"), "--out", str(tmp_path / "out"), "--processes", "1"
    )
    assert result.exit_code == 0, result.output
    (row,) = json.loads((tmp_path / "out" / "joint.json").read_text())["decisions"]
    assert (row["group"], row["snapshot"], row["contested"]) == ("recorded/monday", "plan-000001.json", True)
    assert row["solvers"]["greedy"]["behind_in"] == "credit"


def test_bad_snapshots_are_named(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"), "--processes", "1")
    folder = tmp_path / "recorded"
    result = tao("joint", "--snapshots", str(folder), *out)
    assert (result.exit_code, "is no folder" in result.output) == (2, True)
    folder.mkdir()
    result = tao("joint", "--snapshots", str(folder), *out)
    assert (result.exit_code, "holds no .json file" in result.output) == (2, True)
    (folder / "bad.json").write_text("{}")
    result = tao("joint", "--snapshots", str(folder), *out)
    assert (result.exit_code, "bad.json: not a snapshot" in result.output) == (2, True)
    result = tao("knee", "--snapshots", str(folder), *out)
    assert (result.exit_code, "knee compares policies" in result.output) == (2, True)
