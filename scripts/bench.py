"""Runs the benchmarks one after another and files what each printed under `benchmarks/results/`.

A benchmark is a script `benchmarks/NAME.py` that runs with no arguments, prints its figures and ends. Each result
begins with the date, the machine and the commit, without which a figure means nothing. What takes an hour, or needs
something installed by hand, lives in a folder below and is not found here.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
SECONDS_MAX = 1_200.0


def benchmarks() -> list[str]:
    """The names of all benchmarks."""
    return sorted(path.stem for path in BENCHMARKS.glob("*.py") if not path.stem.startswith("_"))


def processor() -> str:
    """The name of the processor as the kernel tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is checked out, marked when files differ from it; `unknown` outside a repository. Results that are
    being written are no difference.
    """
    named = _git("describe", "--always")
    changed = _git(
        "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results", ":!docs"
    )
    return f"{named}-dirty" if named and changed else named or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def heading(name: str, now: datetime.datetime) -> str:
    """What a reader needs to know of a figure: when, on what, of which code."""
    return (
        f"benchmark: {name}\n"
        f"date:      {now:%Y-%m-%d %H:%M} UTC\n"
        f"machine:   {processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}\n"
        f"python:    {platform.python_version()}\n"
        f"commit:    {commit()}\n\n"
    )


def run(name: str, now: datetime.datetime) -> int:
    """Run one benchmark, show what it prints, file it when it succeeds; returns its exit code (124 past the limit)."""
    print(f"=== {name}", flush=True)
    command = [sys.executable, str(BENCHMARKS / f"{name}.py")]
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} took longer than {SECONDS_MAX:.0f} s", file=sys.stderr)
        return 124
    print(done.stdout, flush=True)
    if done.returncode == 0:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}-{now:%Y-%m-%d}.txt").write_text(heading(name, now) + done.stdout)
    return done.returncode


def main() -> int:
    """`bench.py [NAME ...]`: 0 when all ran, 1 when one failed, 2 for an unknown name."""
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    options = parser.parse_args()
    known = benchmarks()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(known)})", file=sys.stderr)
        return 2
    now = datetime.datetime.now(datetime.UTC)
    failed = [name for name in options.names or known if run(name, now) != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
