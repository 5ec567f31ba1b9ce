"""What the predictor learns outlives the gateway, and whether it is right is shown."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, fake_engine, says, usage
from gateway_kit import Front, fronted, until
from prometheus_client.parser import text_string_to_metric_families

from tao.core.events import ToolCall
from tao.gateway.learned import LearnedFile, kept
from tao.policies import make_policy
from tao.policies.prediction import NoPredictionError, choose_predictor, predicting, prediction_of
from tao.policies.returns import Absence, BackoffHistogram, EmpiricalBernstein, UnknownPredictorError

FROM_THE_FUTURE = '{"format":"tao-learned-returns","version":99,"predictor":"backoff-histogram","state":{}}'
BASH = Absence((ToolCall("Bash", "make"),), "t")


def taught(seconds: float = 42.0) -> BackoffHistogram:
    predictor = BackoffHistogram()
    for _ in range(60):
        predictor.learn(BASH, seconds)
    return predictor


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def calls_of_tools(front: Front, engine: FakeEngine, count: int, tool: str = "Bash") -> None:
    """So many turns of one session, each of which asks for the tool, so one tool call fewer that has ended."""
    for _ in range(count):
        engine.then(says("ok", tools=[tool], counts=usage(300, 20)))
        assert (await front.chat(session="s")).status_code == 200


async def test_a_gateway_that_is_started_again_knows_what_it_knew(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    for expected in ("default", "history of this tool"):
        policy = make_policy("tao")
        predictor = predicting(policy, "test").predictor
        async with (
            kept(path, predictor, 3600.0),
            fake_engine() as engine,
            fronted(engine.url, policy=policy) as front,
        ):
            engine.then(says("ok", tools=["Bash"], counts=usage(300, 20)))
            await front.chat(session="new")
            told = (await front.http.get("/explain/new")).json()["values"]["return"]
            assert expected in told["source"] or (expected != "default" and "history" in told["source"]), told
            await calls_of_tools(front, engine, 20)
    assert json.loads(path.read_text())["predictor"] == "backoff-histogram"


async def test_what_a_killed_gateway_left_beside_the_file_is_gone_after_a_start(tmp_path: Path) -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    stale = tmp_path / f".learned.json.{gone.pid}.tmp"
    stale.write_bytes(b"half")
    async with kept(tmp_path / "learned.json", taught(), 3600.0):
        assert names_in(tmp_path) == []
    assert names_in(tmp_path) == ["learned.json"]


async def test_it_is_saved_while_the_gateway_runs(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    async with kept(path, taught(), 0.01):
        await until(path.exists)
    assert names_in(tmp_path) == ["learned.json"]


async def test_a_save_leaves_the_event_loop_alone(tmp_path: Path) -> None:
    """What is exported comes in steps between which the loop goes on, and the predictor goes on learning."""
    predictor = BackoffHistogram()
    for number in range(500):
        predictor.learn(Absence((ToolCall(f"tool-{number}"),), "t"), 1.0)
    steps = 0

    async def work() -> None:
        nonlocal steps
        while True:
            steps += 1
            predictor.learn(Absence((ToolCall(f"more-{steps}"),), "t"), 2.0)
            await asyncio.sleep(0)

    working = asyncio.ensure_future(work())
    file = LearnedFile(tmp_path / "learned.json", predictor)
    await file.save()
    working.cancel()
    assert steps > 50
    file.load()
    assert predictor.predict(Absence((ToolCall("tool-7"),), "t")).quantile(0.5) < 2.0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("garbage", "not a learned state"),
        (
            json.dumps(
                {
                    "format": "tao-learned-returns",
                    "version": 99,
                    "predictor": "backoff-histogram",
                    "state": {},
                }
            ),
            "version 99",
        ),
    ],
)
async def test_a_file_that_cannot_be_used_is_set_aside(
    tmp_path: Path, logs: list[dict[str, Any]], content: str, why: str
) -> None:
    path = tmp_path / "learned.json"
    path.write_text(content)
    async with kept(path, taught(), 3600.0):
        assert (tmp_path / "learned.json.unusable-1").read_text() == content
    (entry,) = logs
    assert why in entry["complaint"]
    fresh = BackoffHistogram()
    LearnedFile(path, fresh).load()
    assert fresh.predict(BASH).quantile(0.5) == pytest.approx(42.0, rel=0.3)


async def test_what_cannot_be_saved_later_is_told_and_tried_again(
    tmp_path: Path, logs: list[dict[str, Any]]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "learned.json"
    async with kept(path, taught(), 0.01):
        await until(path.exists)
        path.unlink()
        folder.rmdir()
        file = LearnedFile(path, taught())
        await file.save()
        assert [entry["event"] for entry in logs][-1] == "what was learned could not be saved"
        folder.mkdir()
        await file.save()
        assert path.exists()


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device or a pipe"):
        LearnedFile(pipe, taught()).load()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("place", ["missing/learned.json", "."])
def test_a_place_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path, place: str) -> None:
    with pytest.raises(OSError, match=r"cannot be written|a folder"):
        LearnedFile(tmp_path / place, taught()).load()
    assert list(tmp_path.iterdir()) == []


def test_a_predictor_is_chosen_by_name() -> None:
    policy = make_policy("tao")
    choose_predictor(policy, "empirical-bernstein")
    assert isinstance(predicting(policy, "test").predictor, EmpiricalBernstein)
    with pytest.raises(UnknownPredictorError, match="Known: backoff-histogram, empirical-bernstein"):
        choose_predictor(policy, "oracle-of-delphi")
    for name in ("round-robin", "tao-no-readiness"):
        assert prediction_of(make_policy(name)) is None
        with pytest.raises(NoPredictionError, match=f"'{name}' predicts no returns"):
            choose_predictor(make_policy(name), "constant-5s")


# --- calibration ------------------------------------------------------------------------------------------------------


def samples(page: str) -> Mapping[tuple[str, ...], float]:
    """By name and labels in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_predictions_are_shown_against_what_came() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await calls_of_tools(front, engine, 5)
        told = samples((await front.http.get("/metrics")).text)
        assert told["tao_returns_total", "Bash"] == 4
        # Returns at once, against a first guess of seconds: off at first.
        assert 0 < told["tao_return_error_seconds_total", "Bash"] < 4 * 30
        assert 0 <= told["tao_returns_within_half_second_total", "Bash"] <= 4
        assert {name[1] for name in told if name[0] == "tao_returns_covered_total"} == {"50", "80", "95"}
        prediction = (await front.state())["prediction"]
        assert prediction["predictor"] == "backoff-histogram"
        assert prediction["tools"]["Bash"]["calls"] == 4
        assert set(prediction["tools"]["Bash"]["coverage"]) == {"50", "80", "95"}


async def test_names_that_clients_invent_do_not_flood_the_page() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        for number in range(80):
            await calls_of_tools(front, engine, 1, f"tool-{number}-" + "x" * 200)
        told = samples((await front.http.get("/metrics")).text)
        names = {name[1] for name in told if name[0] == "tao_returns_total"}
        assert len(names) == 65
        assert "(other)" in names
        assert max(map(len, names)) <= 64


async def test_a_policy_that_predicts_nothing_shows_nothing_of_it() -> None:
    async with fake_engine() as engine, fronted(engine.url, policy="round-robin") as front:
        await calls_of_tools(front, engine, 3)
        assert "tao_return" not in (await front.http.get("/metrics")).text
        assert "prediction" not in await front.state()


async def test_no_series_tells_when_it_began() -> None:
    async with fake_engine() as engine, fronted(engine.url) as front:
        await front.chat()
        assert "_created" not in (await front.http.get("/metrics")).text
