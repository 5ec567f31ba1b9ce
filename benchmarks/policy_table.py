"""The table of docs/results/simulator.md: every policy by workers, from what `tao simulate --json FILE --floor` wrote.

usage: python benchmarks/policy_table.py FILE
Prints Markdown: in each cell mean session latency in seconds and, in brackets, decode throughput in tokens per second;
then hit rate, longest hold and interrupts at the largest number of workers. The best latency of a column is bold.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FLOOR = "no memory limit (the floor)"

Row = Mapping[str, Any]


def cell(run: Row, best_seconds: float) -> str:
    """One run."""
    seconds = run["latency_seconds"]["mean"]
    shown = f"**{seconds:,.0f}**" if seconds == best_seconds else f"{seconds:,.0f}"
    rate = run["decode_tokens_per_second"]
    return shown if rate is None else f"{shown} ({rate:,.0f})"


def table(runs: Sequence[Row], floors: Sequence[Row]) -> Iterator[str]:
    """Markdown lines, policies by their latency at the largest number of workers."""
    workers = sorted({run["concurrency"] for run in runs})
    by_policy: dict[str, dict[int, Row]] = {}
    for run in runs:
        by_policy.setdefault(run["policy"], {})[run["concurrency"]] = run
    best = {
        w: min(run["latency_seconds"]["mean"] for run in runs if run["concurrency"] == w) for w in workers
    }
    last = workers[-1]
    of_last = f"at W={last}: hit rate | longest hold, s | interrupts"
    yield "| policy | " + " | ".join(f"W={w}" for w in workers) + f" | {of_last} |"
    yield "|---" * (len(workers) + 4) + "|"
    for policy in sorted(by_policy, key=lambda name: by_policy[name][last]["latency_seconds"]["mean"]):
        of = by_policy[policy]
        end = of[last]
        cells = [cell(of[w], best[w]) for w in workers]
        rest = (
            f"{end['prefix_hit_rate']:.2f}",
            f"{end['hold_seconds']['max']:,.0f}",
            f"{end['interrupts']:,}",
        )
        yield f"| `{policy}` | " + " | ".join((*cells, *rest)) + " |"
    floor = {run["concurrency"]: run for run in floors}
    if floor:
        yield f"| {FLOOR} | " + " | ".join(cell(floor[w], -1.0) for w in workers) + " | | | |"


def main() -> None:
    """Print the table of one file."""
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    told = json.loads(Path(sys.argv[1]).read_text())
    print("\n".join(table(told["runs"], told.get("floors", []))))


if __name__ == "__main__":
    main()
