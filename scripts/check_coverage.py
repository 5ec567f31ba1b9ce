"""Holds each named package of `tao` to a least coverage, lines and branches counted apart.

coverage.py's own threshold is one figure over everything: a well-tested large package would hide an untested
small one. Reads the JSON report and knows nothing of how it was measured.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of executable lines and of branches of one package, and how many of each the tests reached."""

    lines: int
    lines_covered: int
    branches: int
    branches_covered: int

    @property
    def lines_percent(self) -> float:
        """Share of lines reached, in percent; 100 when there is none."""
        return 100.0 * self.lines_covered / self.lines if self.lines else 100.0

    @property
    def branches_percent(self) -> float:
        """Share of branches reached, in percent; 100 when there is none."""
        return 100.0 * self.branches_covered / self.branches if self.branches else 100.0


def measure(report: Mapping[str, Any], package: str) -> Coverage:
    """Add up the files of `tao.<package>`; raises KeyError when the report holds none of them."""
    marker = f"tao/{package}/"
    summaries = [
        entry["summary"]
        for name, entry in sorted(report["files"].items())
        if marker in name.replace("\\", "/")
    ]
    if not summaries:
        raise KeyError(package)
    return Coverage(
        lines=sum(summary["num_statements"] for summary in summaries),
        lines_covered=sum(summary["covered_lines"] for summary in summaries),
        branches=sum(summary["num_branches"] for summary in summaries),
        branches_covered=sum(summary["covered_branches"] for summary in summaries),
    )


def missing_in(report: Mapping[str, Any], package: str) -> Iterable[str]:
    """For each file of the package that is not fully covered, one line naming what was not reached."""
    for name, entry in sorted(report["files"].items()):
        if f"tao/{package}/" in name and (entry["missing_lines"] or entry.get("missing_branches")):
            branches = [f"{start}->{end}" for start, end in entry.get("missing_branches", [])]
            yield f"  {name}: lines {entry['missing_lines']} branches {branches}"


def gate(text: str) -> tuple[str, float]:
    """Parse `package=percent`."""
    package, separator, percent = text.partition("=")
    try:
        return package, float(percent) if separator else 100.0
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form package=percent") from error


def main(argv: list[str] | None = None) -> int:
    """`REPORT.json PACKAGE=PERCENT ...`: 0 when all gates hold, 1 when one does not, 2 for bad input."""
    parser = argparse.ArgumentParser(description="Enforce a least coverage per package.")
    parser.add_argument("report", type=Path)
    parser.add_argument("gates", type=gate, nargs="+", metavar="PACKAGE=PERCENT")
    options = parser.parse_args(argv)
    report = json.loads(options.report.read_text())
    if not report.get("meta", {}).get("branch_coverage", False):
        print(f"{options.report} was measured without branches", file=sys.stderr)
        return 2
    failed = False
    for package, percent in options.gates:
        try:
            coverage = measure(report, package)
        except KeyError:
            print(f"{options.report} holds no file of tao.{package}", file=sys.stderr)
            return 2
        holds = min(coverage.lines_percent, coverage.branches_percent) >= percent
        failed = failed or not holds
        print(
            f"coverage of tao.{package}: lines {coverage.lines_percent:.1f} %, "
            f"branches {coverage.branches_percent:.1f} % ({'at least' if holds else 'BELOW'} {percent:g} %)"
        )
        if not holds:
            print("\n".join(missing_in(report, package)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
