"""Where `tao simulate` and `tao predict` write to is looked at before anything runs, and is never what they read."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli import main
from tao.traces import sample_path

SMALL = ("--sessions", "2", "--policy", "round-robin", "--processes", "1")


def tao(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(sample_path().read_bytes())
    return path


def test_a_trace_is_not_overwritten(trace: Path, tmp_path: Path) -> None:
    link = tmp_path / "same.json"
    link.symlink_to(trace)
    for output in (trace, link):
        for command in (
            ("simulate", str(trace), *SMALL),
            ("simulate", "--trace", str(trace), "sample", *SMALL),
            ("predict", str(trace)),
            ("predict", "sample", "--train", str(trace)),
        ):
            result = tao(*command, "--json", str(output))
            assert result.exit_code == 2, result.output
            assert "is to be written and is read" in result.output
    assert trace.read_bytes() == sample_path().read_bytes()


@pytest.mark.parametrize("command", [("simulate", *SMALL), ("predict", "sample")])
def test_an_output_that_cannot_be_written_ends_it_at_once(command: tuple[str, ...], tmp_path: Path) -> None:
    for output, says in ((tmp_path / "none" / "x.json", "there is no folder"), (tmp_path, "it is a folder")):
        result = tao(*command, "--json", str(output))
        assert result.exit_code == 2
        assert f"cannot write {output}: {says}" in result.output
        assert "latency" not in result.output


def test_snapshots_need_a_folder(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    result = tao("simulate", *SMALL, "--record-snapshots", str(taken))
    assert result.exit_code == 2
    assert f"cannot make the folder {taken}: File exists" in result.output


def test_a_trace_without_sessions_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "log.jsonl"
    empty.write_text('{"type":"summary","leafUuid":"1"}\n')
    for more in ((), ("--fitted", "3")):
        result = tao("simulate", str(empty), *SMALL, *more)
        assert result.exit_code == 2
        assert f"there is no session in {empty}" in result.output


def test_figures_replace_a_file_when_they_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("of an earlier run")
    assert tao("simulate", *SMALL, "--json", str(out)).exit_code == 0
    assert out.read_text().startswith("{")
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told() -> None:
    result = tao("simulate", *SMALL, "--json", "/dev/full")
    assert result.exit_code == 1
    assert "/dev/full: cannot be written: No space left on device" in result.output


def test_the_way_to_the_floor_needs_its_beginning() -> None:
    told = "from ThunderAgent, which is not among the policies"
    assert told in tao("simulate", *SMALL, "--floor").stdout
    assert told not in tao("simulate", *SMALL, "--policy", "thunderagent", "--floor").stdout


def test_a_snapshot_with_a_byte_order_mark(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text('{"replicas": [], "sessions": []}', encoding="utf-8-sig")
    assert tao("plan", str(snapshot)).exit_code == 0
