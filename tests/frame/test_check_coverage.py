"""The coverage gate: a package below its bound fails, whatever the others reach."""

import json
from pathlib import Path

import pytest

import check_coverage


def summary(lines: int, lines_covered: int, branches: int, branches_covered: int) -> dict[str, object]:
    return {
        "summary": {
            "num_statements": lines,
            "covered_lines": lines_covered,
            "num_branches": branches,
            "covered_branches": branches_covered,
        },
        "missing_lines": list(range(lines - lines_covered)),
        "missing_branches": [[1, 2]] * (branches - branches_covered),
    }


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "coverage.json"
    files = {
        "src/tao/core/a.py": summary(100, 99, 50, 49),
        "src/tao/core/b.py": summary(100, 99, 50, 49),
        "src/tao/planning/c.py": summary(1000, 1000, 10, 9),
    }
    path.write_text(json.dumps({"meta": {"branch_coverage": True}, "files": files}))
    return path


def test_a_package_at_its_bound_passes(report: Path) -> None:
    assert check_coverage.main([str(report), "core=98"]) == 0


def test_lines_do_not_make_up_for_branches(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_coverage.main([str(report), "core=98", "planning=98"]) == 1
    printed = capsys.readouterr().out
    assert "tao.planning: lines 100.0 %, branches 90.0 % (BELOW 98 %)" in printed
    assert "src/tao/planning/c.py: lines [] branches ['1->2']" in printed


def test_a_package_that_was_not_measured_is_an_error(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_coverage.main([str(report), "policies=98"]) == 2
    assert "no file of tao.policies" in capsys.readouterr().err


def test_a_report_without_branches_is_an_error(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(report.read_text())
    content["meta"]["branch_coverage"] = False
    report.write_text(json.dumps(content))
    assert check_coverage.main([str(report), "core=98"]) == 2
    assert "without branches" in capsys.readouterr().err


def test_a_gate_that_is_no_number_is_refused(report: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        check_coverage.main([str(report), "core=high"])
    assert stopped.value.code == 2
