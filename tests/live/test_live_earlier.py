"""A benchmark that was broken off is completed: what was made is kept, what failed or is missing is made."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import __main__ as live
from benchmarks.live import engines
from benchmarks.live.earlier import earlier_rows
from benchmarks.live.engines import LiveConfig
from benchmarks.live.peers import chosen

QUICK = LiveConfig(**live.QUICK)


def row(repeat: int, peer: str, **other: Any) -> dict[str, Any]:
    replay = {
        "latency_seconds": {"mean": 60.0, "p50": 50.0},
        "ttft_seconds": {"mean": 1.0, "p50": 0.5},
        "makespan_seconds": 100.0,
    }
    return {"repeat": repeat, "peer": peer, "engine_hit_rate": 0.5, "replay": replay, **other}


def result(path: Path, config: LiveConfig, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"config": dataclasses.asdict(config), "rows": rows}))
    return path


def test_runs_that_failed_are_made_again(tmp_path: Path) -> None:
    path = result(tmp_path / "r.json", QUICK, row(0, "tao"), row(0, "round-robin", error="it broke"))
    assert [one["peer"] for one in earlier_rows(path, QUICK)] == ["tao"]
    assert earlier_rows(tmp_path / "none.json", QUICK) == []


def test_runs_of_another_load_are_not_compared_with_these(tmp_path: Path) -> None:
    path = result(tmp_path / "r.json", LiveConfig(), row(0, "tao"))
    with pytest.raises(ValueError, match=r"cannot be compared with others; choose another --out"):
        earlier_rows(path, QUICK)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"config": {}, "rows": [{"peer": "tao"}]}', '{"rows": 3}']
)
def test_what_is_no_result_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"r\.json is no result that can be completed .*--resume"):
        earlier_rows(path, QUICK)


def test_only_what_is_missing_is_run_and_the_file_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(config: LiveConfig, peers: Any, repeats: int, logs: Path, on_row: Any, done: Any) -> None:
        for peer in peers:
            for repeat in range(repeats):
                if (repeat, peer.name) not in done:
                    on_row(row(repeat, peer.name, made="now"))

    monkeypatch.setattr(engines, "measure", measured)
    path = result(tmp_path / "live-engines.json", QUICK, row(0, "tao", made="earlier"), row(3, "tao"))
    options = live.options_of(["engines", "--quick", "--resume", "--out", str(tmp_path)])
    live.run_engines(options, chosen(["tao", "round-robin"]))
    rows = json.loads(path.read_text())["rows"]
    assert [(one["repeat"], one["peer"], one.get("made")) for one in rows] == [
        (0, "tao", "earlier"),
        (3, "tao", None),
        (0, "round-robin", "now"),
    ]
    assert rows[2]["date"]
    assert rows[2]["commit"]
    told = capsys.readouterr().out
    assert "engines: 1 runs (1 made earlier)" in told
    assert "1/1 repeat 1, round-robin" in told
