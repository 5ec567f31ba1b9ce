"""The learned state in a file: there and back, set aside when unusable, never half written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tao.core.events import ToolCall
from tao.policies.returns import Absence, BackoffHistogram, EmpiricalBernstein
from tao.record.learned import clear_away, load_learned, save_learned, write_learned

BASH = Absence((ToolCall("Bash", "make"),), "t")


def taught() -> BackoffHistogram:
    predictor = BackoffHistogram()
    for _ in range(50):
        predictor.learn(BASH, 42.0)
    return predictor


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    save_learned(path, taught())
    fresh = BackoffHistogram()
    assert load_learned(path, fresh) is None
    assert fresh.predict(BASH).quantile(0.5) == pytest.approx(taught().predict(BASH).quantile(0.5), rel=1e-3)
    assert [file.name for file in tmp_path.iterdir()] == ["learned.json"]


def test_no_file_is_nothing_learned_yet(tmp_path: Path) -> None:
    assert load_learned(tmp_path / "learned.json", BackoffHistogram()) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a learned state"),
        (b"\x00\xff", "not a learned state"),
        (b'{"format": "tao-learned-returns"}', "not a learned state"),
        (b"[" * 100_000, "not a learned state"),
        (b'{"format":"x","version":1,"predictor":"backoff-histogram","state":{}}', "version 1"),
        (
            b'{"format":"tao-learned-returns","version":2,"predictor":"backoff-histogram","state":{}}',
            "version 2",
        ),
        (b'{"format":"tao-learned-returns","version":1,"predictor":"backoff-histogram","state":{}}', "roots"),
    ],
    ids=["empty", "binary", "fields missing", "deep", "format", "version", "state"],
)
def test_a_file_that_cannot_be_used_is_set_aside(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content)
    message = load_learned(path, BackoffHistogram())
    assert message is not None
    assert why in message
    assert "set aside as learned.json.unusable-1" in message
    assert "afresh" in message
    assert not path.exists()
    assert (tmp_path / "learned.json.unusable-1").read_bytes() == content


def test_what_another_predictor_learned_is_set_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    save_learned(path, taught())
    message = load_learned(path, EmpiricalBernstein())
    assert message is not None
    assert "learned by 'backoff-histogram', not by 'empirical-bernstein'" in message


def test_only_so_many_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    for index in range(8):
        path.write_text(str(index))
        assert load_learned(path, BackoffHistogram()) is not None
    assert sorted(file.name[-1] for file in tmp_path.iterdir()) == list("12345")
    assert (tmp_path / "learned.json.unusable-5").read_text() == "7"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    write_learned(path, b"old")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_learned(tmp_path / "taken", b"new")
    with pytest.raises(OSError, match="missing"):
        write_learned(tmp_path / "missing" / "learned.json", b"new")
    assert path.read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["learned.json", "taken"]
    message = load_learned(tmp_path / "taken", BackoffHistogram())
    assert message is not None, "a folder in its place"


def ended_process() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "learned[1].json"
    dead, alive = ended_process(), os.getppid()
    kept = [
        f".learned[1].json.{alive}.tmp",  # somebody who writes at this moment
        f".learned[1].json.{os.getpid()}.tmp",
        f".other.json.{dead}.tmp",
        f".learned[1].json.{dead}.tmp.old",
        f"learned[1].json.{dead}.tmp",
        ".learned[1].json.0.tmp",
        ".learned[1].json.-1.tmp",
        ".learned[1].json.x.tmp",
        ".learned1.json.tmp",
        "learned[1].json",
    ]
    stale = [f".learned[1].json.{dead}.tmp", ".learned[1].json.9999999999.tmp"]
    for name in (*kept, *stale):
        (tmp_path / name).write_bytes(b"half")
    clear_away(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(kept)


def test_a_folder_by_such_a_name_or_none_at_all_fails_nothing(tmp_path: Path) -> None:
    folder = tmp_path / f".learned.json.{ended_process()}.tmp"
    folder.mkdir()
    clear_away(tmp_path / "learned.json")
    assert folder.is_dir()
    clear_away(tmp_path / "missing" / "learned.json")
