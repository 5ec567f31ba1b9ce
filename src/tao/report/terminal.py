"""Runs as a table for a terminal. What the figures mean is in `tao.record.summary`.

It shows results and computes none; it must not know how runs were made.
"""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tao.report.bounds import Floor
from tao.sim.run import RunResult
from tao.sim.workload import PoissonArrivals

COLUMNS = (
    "latency\nmean",
    "latency\np99",
    "TTFT\nmean",
    "tool end\nto token",
    "hold\nmax",
    "decode\ntok/s",
    "hit\nrate",
    "inter-\nrupts",
    "migra-\ntions",
    "forced",
    "failed",
)
WIDTH_UNSEEN = 140
"""Columns of a table that goes to a file or a pipe."""


def console_for_tables() -> Console:
    """The terminal, or a wide page where there is none. Names are shown as they are: brackets in them are no markup."""
    console = Console(markup=False, emoji=False)
    return console if console.is_terminal else Console(width=WIDTH_UNSEEN, markup=False, emoji=False)


def shown(name: str) -> str:
    """A name out of a file as text for a terminal: one that would steer the terminal is spelt out."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in name)


def runs_table(runs: Sequence[RunResult], floors: Sequence[Floor] = ()) -> Table:
    """One row a run; with floors, a row for each and how much of the way to it each run went."""
    spec = runs[0].spec
    table = Table(
        title=f"{spec.replicas} x {shown(spec.profile.name)}, {spec.replica_kv_tokens:,} KV tokens each (seconds)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("arrivals" if spec.concurrency is None else "workers", justify="right", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for heading in COLUMNS + (("way to\nfloor",) if floors else ()):
        table.add_column(heading, justify="right", no_wrap=True)
    if floors and all(floor.reference_seconds is None for floor in floors):
        table.caption = "way to floor: from ThunderAgent, which is not among the policies"
    by_load = {floor.result.spec.arrivals: floor for floor in floors}
    for index, run in enumerate(runs):
        floor = by_load.get(run.spec.arrivals)
        recovered = [_cell(floor.recovered_share(run), "{:.0%}")] if floor is not None else []
        table.add_row(_load(run), run.spec.policy, *_figures(run), *recovered)
        if index + 1 == len(runs) or runs[index + 1].spec.arrivals != run.spec.arrivals:
            if floor is not None:
                table.add_row(_load(run), "(unlimited memory)", *_figures(floor.result), "", style="dim")
            table.add_section()
    return table


def _load(run: RunResult) -> str:
    arrivals = run.spec.arrivals
    if isinstance(arrivals, PoissonArrivals):
        return f"{arrivals.rate_per_second:g}/s"
    return str(arrivals.workers)


def _figures(run: RunResult) -> list[str]:
    summary, counts = run.summary, run.counts
    decode = summary.decode_tokens_per_second
    if decode is None:
        decode = summary.decode_tokens_per_second_overall
    return [
        _cell(summary.latency_seconds.mean, "{:.1f}"),
        _cell(summary.latency_seconds.p99, "{:.0f}"),
        _cell(summary.ttft_seconds.mean, "{:.2f}"),
        _cell(summary.tool_end_to_first_token_seconds.mean, "{:.2f}"),
        _cell(summary.hold_seconds.max, "{:.0f}"),
        _cell(decode, "{:.0f}"),
        _cell(summary.prefix_hit_rate, "{:.1%}"),
        str(counts.interrupts),
        str(counts.migrations),
        str(counts.forced_placements),
        str(summary.sessions_failed),
    ]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
