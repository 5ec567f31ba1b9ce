"""`tao evaluate` from the outside: a small suite of one's own, its report and its figures."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli import main
from tao.report.evaluation import PointResult
from tao.report.page import sections
from tao.report.suite import parse_suite, points_of

SUITE = """
name = "mine"
title = "Mine & <yours>"
description = "A suite for a test."
policies = ["round-robin", "thunderagent", "tao", "tao+told-returns"]
baselines = ["round-robin", "thunderagent"]
seeds = 3
[[setting]]
name = "two replicas"
stands_for = "nothing"
profile = "qwen3-32b-tp2-h100"
traces = ["agents"]
kv_tokens = 50_000
sessions = 10
replicas = [2]
concurrency = [2, 8]
"""


def tao(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", *arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "mine.toml").write_text(SUITE)
    result = tao(str(folder / "mine.toml"), "--out", str(folder / "reports"), "--processes", "1")
    assert result.exit_code == 0, result.output
    return folder / "reports", result


def test_a_report_of_one_file(made: tuple[Path, Result]) -> None:
    text = (made[0] / "mine.html").read_text()
    assert "Mine &amp; &lt;yours&gt;" in text
    assert "<yours>" not in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', text)  # nothing to fetch
    assert "Plotly.newPlot" in text
    assert "tao evaluate" in text
    assert "stands in for it" in text  # the trace was not there
    for word in (
        "round-robin",
        "thunderagent",
        "tao",
        "unlimited memory",
        "way to the floor",
        "In the place of",
    ):
        assert word in text
    assert re.search(r"± [\d.]+ % <b>(win|tie|loss)", text)


def test_the_figures_as_json(made: tuple[Path, Result]) -> None:
    document = json.loads((made[0] / "mine.json").read_text())
    assert (document["suite"], document["seeds"]) == ("mine", 3)
    assert list(document["stand_ins"]) == ["agents"]
    rows = document["runs"]
    assert len(rows) == 2 * 3 * (4 + 1)
    assert sum(row["is_floor"] for row in rows) == 6
    assert {row["x"] for row in rows} == {"2", "8"}
    played = {row["policy"] for row in rows if not row["is_floor"]}
    assert played == {"round-robin", "thunderagent", "tao", "tao+told-returns"}
    assert all(row["setting"] == "two replicas" for row in rows)
    assert all(row["sessions"] == 10 for row in rows)


def test_wins_and_losses_on_the_terminal(made: tuple[Path, Result]) -> None:
    assert "losses" in made[1].output
    assert "trace agents not found" in made[1].output


def test_a_folder_of_traces(tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(SUITE.replace("seeds = 3", "seeds = 1"))
    lines = [
        json.dumps({"session_id": f"s{n}", "turns": [{"prompt_tokens": 400 + n, "output_tokens": 9}] * 2})
        for n in range(4)
    ]
    (tmp_path / "agents.jsonl").write_text("\n".join(lines))
    (tmp_path / "mine.json").write_text("the figures of a whole run")
    result = tao(
        str(suite),
        "--quick",
        "--seeds",
        "1",
        "--traces",
        str(tmp_path),
        "--out",
        str(tmp_path),
        "--processes",
        "1",
    )
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "mine-quick.json").read_text())
    assert (document["suite"], document["stand_ins"]) == ("mine", {})
    assert "--quick --traces" in (tmp_path / "mine-quick.html").read_text()
    assert (tmp_path / "mine.json").read_text() == "the figures of a whole run"
    assert not (tmp_path / "mine.html").exists()


def test_points_that_differ_in_more_than_the_axis_are_shown_apart(tmp_path: Path) -> None:
    """What docs/evaluation.md shows: workers on the axis, and variants beside."""
    suite = tmp_path / "mine.toml"
    variants = 'variants = [{name = "as it is"}, {name = "slow prefill", prefill = 1.3}]'
    suite.write_text(SUITE.replace("seeds = 3", "seeds = 1") + variants)
    result = tao(str(suite), "--out", str(tmp_path), "--processes", "1")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "mine.html").read_text()
    titles = ("two replicas: as it is", "two replicas: slow prefill")
    assert re.findall("<h2>(two replicas.*)</h2>", text) == list(titles)
    for title in titles:
        part = text[text.index(f"<h2>{title}</h2>") :]
        figures = part[part.index("<h3>Figures</h3>") : part.index("<h3>Against")]
        assert len(re.findall("<i>unlimited memory</i>", figures)) == 2  # one for each number of workers


def test_points_of_a_sweep_over_variants_are_shown_by_load() -> None:
    variants = 'variants = [{name = "as it is"}, {name = "slow prefill", prefill = 1.3}]'
    suite = parse_suite(SUITE.replace("[[setting]]", 'sweeps = "variants"\n[[setting]]') + variants, "t")
    results = [PointResult(point, {}, [], ()) for point in points_of(suite)]
    told = [(title, [one.point.x for one in points]) for title, points in sections(results, "variants")]
    assert told == [
        ("two replicas: 2 replicas, 2 workers", ["as it is", "slow prefill"]),
        ("two replicas: 2 replicas, 8 workers", ["as it is", "slow prefill"]),
    ]


OWN = """
from tao.policies.baselines.session_fcfs import SessionFcfs

class Raises(SessionFcfs):
    name = "mine"

    def place(self, view, session, turn, at):
        raise ValueError("boom")

class OverBooks(SessionFcfs):
    name = "mine"

    def place(self, view, session, turn, at):
        from tao.core.commands import Reason
        from tao.core.ports import Place

        return Place(next(iter(view.replicas)), Reason.ROOM)
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Raises", "a run broke off: own_rules:Raises, 8 workers, seed 0: ValueError: boom (in place, "),
        ("OverBooks", "two replicas, 2 replicas, 8 workers, own_rules:OverBooks, seed 0: at "),
    ],
)
def test_what_is_wrong_with_a_run_is_told_with_what_repeats_it(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rules.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = tmp_path / "mine.toml"
    own = SUITE.replace('"tao", "tao+told-returns"', f'"own_rules:{name}"').replace("seeds = 3", "seeds = 1")
    suite.write_text(own.replace("[2, 8]", "[8]"))
    result = tao(str(suite), "--out", str(tmp_path), "--processes", "1")
    assert result.exit_code == 1
    assert says in result.stderr
    assert re.search(rf"[tT]o repeat: tao evaluate {re.escape(str(suite))}\n", result.output)


def test_where_reports_go_is_looked_at_first(tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(SUITE)
    result = tao(str(suite), "--out", str(suite))
    assert (result.exit_code, "cannot make the folder" in result.output) == (2, True)
    assert "runs" not in result.output
    result = tao(str(suite), str(suite), "--out", str(tmp_path))
    assert (result.exit_code, "two suites are named 'mine'" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mian",), "unknown suite"),
        ((), "Missing argument"),
        (("knee", "--traces", "nowhere"), "is no folder"),
        (("knee", "--seeds", "0"), "--seeds"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    result = tao(*arguments)
    assert result.exit_code == 2
    assert says in result.output
