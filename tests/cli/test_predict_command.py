"""`tao predict`: a small trace worked out by hand, the JSON, causality, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tao.cli import main
from tao.policies.readiness import ReadyRule
from tao.policies.returns import PREDICTORS, PointForecast, make_predictor
from tao.report.prediction import DURATION_SECONDS_MAX, absences_of, evaluate, train
from tao.report.predictionscore import Score
from tao.traces import TraceSession, TraceTool, TraceTurn, write_native


def session(name: str, *durations: float, start: float = 0.0, tool: str = "Bash") -> TraceSession:
    turns = tuple(
        TraceTurn(
            prompt_tokens=10,
            output_tokens=1,
            llm_seconds=1.0,
            tool=TraceTool(name=tool, command_head="make", duration_seconds=seconds),
        )
        for seconds in durations
    )
    end = TraceTurn(prompt_tokens=10, output_tokens=1, user_gap_seconds=500.0)
    return TraceSession(session_id=name, source="here", start_offset_seconds=start, turns=(*turns, end))


def written(path: Path, *sessions: TraceSession) -> str:
    write_native(path, sessions)
    return str(path)


def figures(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["predict", *arguments, "--json", "-"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert isinstance(document, dict)
    return document


def test_the_document(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", session("a", 5.0, 2.0, 9.0))
    document = figures(trace)
    assert document["default"] == "backoff-histogram"
    assert [entry["predictor"] for entry in document["predictors"]] == [*PREDICTORS, "oracle"]
    for entry in document["predictors"]:
        assert entry["calls"] == 3, "the wait for a human is not counted"
        assert entry["decision_moments"] == 5 + 2 + 9
        assert {"precision", "recall", "lead_seconds"} == entry["readiness"].keys()
        assert {"50", "80", "95"} == entry["coverage"].keys()
        assert entry["tools"].keys() == {"Bash"}
    by_name = {entry["predictor"]: entry for entry in document["predictors"]}
    constant, oracle = by_name["constant-5s"], by_name["oracle"]
    assert constant["mean_absolute_error_seconds"] == pytest.approx((0 + 3 + 4) / 3)
    assert constant["within_half_second"] == pytest.approx(1 / 3)
    # 5 s: left 5..1 predicted right. 2 s: left 2, 1 and told 5, 4. 9 s: left 9..1, told 5..1 and then 0.
    assert constant["decision_mean_absolute_error_seconds"] == pytest.approx(
        (3 + 3 + 5 * 4 + 4 + 3 + 2 + 1) / 16
    )
    # 5 s and 9 s are called ready at 4 s. At 9 s also in the probes that begin at 5 and 7 s (elapsed 5, 6, 7, 8).
    assert constant["readiness"]["recall"] == pytest.approx(2 / 3)
    assert constant["readiness"]["precision"] == pytest.approx(2 / 6)
    assert constant["readiness"]["lead_seconds"] == pytest.approx((1 + 5) / 2)
    assert oracle["mean_absolute_error_seconds"] == oracle["pinball_loss_seconds"] == 0.0
    assert oracle["readiness"] == {"precision": 1.0, "recall": 1.0, "lead_seconds": 1.0}
    assert oracle["coverage"] == {"50": 1.0, "80": 1.0, "95": 1.0}


def test_training_helps_from_the_first_call(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", session("a", 30.0))
    lessons = written(tmp_path / "l.jsonl", session("b", *[30.0] * 20))
    plain, trained = figures(trace), figures(trace, "--train", lessons)
    assert plain["predictors"][0]["mean_absolute_error_seconds"] > 20.0
    assert trained["predictors"][0]["mean_absolute_error_seconds"] < 5.0


def test_nothing_is_known_too_early(tmp_path: Path) -> None:
    """Two calls at the same time: neither has ended when the other starts, so both are predicted untaught."""
    together = written(tmp_path / "t.jsonl", session("a", 60.0), session("b", 60.0))
    apart = written(tmp_path / "a.jsonl", session("a", 60.0), session("b", 60.0, start=100.0))
    errors = {
        path: next(e for e in figures(path)["predictors"] if e["predictor"] == "per-tool-history")
        for path in (together, apart)
    }
    assert errors[together]["mean_absolute_error_seconds"] == 55.0
    assert errors[apart]["mean_absolute_error_seconds"] < 40.0


def test_an_order_of_files_changes_nothing(tmp_path: Path) -> None:
    one = written(tmp_path / "1.jsonl", session("a", 3.0, 0.0, 4.0))
    two = written(tmp_path / "2.jsonl", session("b", 1.0, 8.0, tool="Read"))
    assert figures(one, two)["predictors"][0]["calls"] == figures(two, one)["predictors"][0]["calls"] == 5


def test_the_table_names_every_predictor(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", session("a", 5.0, 2.0))
    result = CliRunner().invoke(
        main, ["predict", trace, "--predictor", "per-tool-history"], env={"COLUMNS": "250"}
    )
    assert result.exit_code == 0, result.output
    for name in (*PREDICTORS, "oracle", "per-tool-history by tool", "Bash"):
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        (["nothing.jsonl"], "nothing.jsonl"),
        ([""], 'the name of a trace is empty; name a file, a folder, or "sample"'),
        (["sample", "--train", ""], "the name of a trace is empty"),
        (["sample", "--predictor", "guess"], "no predictor is named 'guess'"),
        (["sample", "--train", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_bad_input(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main, ["predict", *arguments])
    assert result.exit_code == 2
    assert says in result.output


def test_a_trace_without_tools_is_refused(tmp_path: Path) -> None:
    only_talk = TraceSession(
        session_id="a", turns=(TraceTurn(prompt_tokens=1, output_tokens=1, user_gap_seconds=3.0),)
    )
    result = CliRunner().invoke(main, ["predict", written(tmp_path / "t.jsonl", only_talk)])
    assert result.exit_code == 2
    assert "nothing to predict" in result.output


def test_a_call_of_many_hours_counts_as_an_hour() -> None:
    recorded = absences_of([session("a", 90_000.0)])
    assert recorded[0].duration_seconds == DURATION_SECONDS_MAX
    report = evaluate(make_predictor("constant-5s"), recorded, ReadyRule())
    assert report.overall.moments == 600
    train(make_predictor(), recorded)


def test_precision_at_a_recall_takes_the_surest_first() -> None:
    score = Score()
    for chance, due in ((0.9, True), (0.8, False), (0.7, True), (0.1, False)):
        score.add_moment(_Chance(chance), 0.0, 0.5 if due else 9.0, chance > 0.5, 1.0)
    assert score.precision_at(0.5) == 1.0
    assert score.precision_at(1.0) == pytest.approx(2 / 3)
    assert score.precision == pytest.approx(2 / 3)
    assert score.recall == 1.0
    assert Score().precision_at(0.5) == 0.0


class _Chance(PointForecast):
    """A forecast that ends within the next second with this chance."""

    def __init__(self, chance: float) -> None:
        super().__init__(1.0, "")
        object.__setattr__(self, "duration_seconds", chance)

    def survival(self, elapsed_seconds: float) -> float:
        return 1.0 if elapsed_seconds <= 0 else 1.0 - self.duration_seconds
