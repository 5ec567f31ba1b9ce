"""`tao plan`: solve one recorded or hand-written joint decision and show what fits where.

Reads a snapshot, runs a solver in this process, prints JSON or a table with the fill of each replica. What a plan is
lives in `tao.planning`; nothing here decides anything.
"""

import codecs
import json
from collections.abc import Mapping

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tao.cli.span import NumberRange
from tao.planning import (
    SOLVERS,
    Answer,
    Problem,
    SnapshotError,
    WorkLimit,
    answer_fields,
    read_snapshot,
    solve,
)
from tao.planning.snapshot import SNAPSHOT_BYTES_MAX
from tao.report.terminal import shown

BAR_CELLS = 10
NAMES_MAX = 8
EIGHTHS = " ▏▎▍▌▋▊▉"


@click.command()
@click.argument("snapshot", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--solver",
    type=click.Choice(tuple(SOLVERS)),
    default="auto",
    show_default=True,
    help="auto: picks by size, best plan found. dp: the paper's, rounded. exact: proved on raw tokens. "
    "bfd: best-fit-decreasing. greedy: short first, to the most credit.",
)
@click.option(
    "--time-limit",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the search after this many seconds with the best plan found.  [default: a fixed amount of work]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(snapshot: str, solver: str, time_limit: float | None, as_json: bool) -> None:
    """Solve the joint decision in SNAPSHOT, a JSON file (- for standard input).

    \b
    {"replicas": [{"id": "a", "capacity_tokens": 120000, "slots": 8}],
     "sessions": [{"id": "s1", "weight_tokens": 20512, "footprint_tokens": 20000,
                   "ready": 1, "credit": {"a": 15000}, "eligible": ["a"],
                   "home": "a", "waited_seconds": 12.5}],
     "wait_seconds_max": 300}

    Optional: slots, ready, credit, eligible (default: all replicas), home, waited_seconds, wait_seconds_max.
    Maximises the sum of credit, then of readiness, then of footprint over the sessions placed.
    """
    try:
        with click.open_file(snapshot, "rb") as file:
            problem = read_snapshot(file.read(SNAPSHOT_BYTES_MAX + 1).removeprefix(codecs.BOM_UTF8))
    except (SnapshotError, OSError) as error:
        raise click.UsageError(f"{snapshot}: {error}") from None
    limit = WorkLimit() if time_limit is None else WorkLimit(time_limit, time_limit)
    answer = solve(problem, solver, limit)
    if as_json:
        click.echo(json.dumps(answer_fields(answer), ensure_ascii=False))
    else:
        _show(problem, answer, Console(markup=False, emoji=False))


def _show(problem: Problem, answer: Answer, console: Console) -> None:
    console.print(_replicas(problem, answer))
    console.print(_values(answer))
    waiting = len(problem.items) - len(answer.assignment)
    quantum = f", quantum {answer.quantum_tokens} tokens" if (answer.quantum_tokens or 1) > 1 else ""
    console.print(
        f"{answer.status} by {answer.solver}{quantum}, {answer.elapsed_seconds * 1000:.1f} ms: "
        f"{len(answer.assignment)} placed ({answer.moves} away from home), {waiting} waiting",
        highlight=False,
        markup=False,
    )
    if answer.ageing is not None:
        placed, aged = len(answer.ageing.placed), len(answer.ageing.aged)
        price = ", ".join(f"{v:,} {n}" for n, v in answer.ageing.price._asdict().items())
        console.print(
            f"waited too long: {aged}, {placed} of them placed first, at a price of {price}", markup=False
        )


def _replicas(problem: Problem, answer: Answer) -> Table:
    table = Table(title="Replicas", title_justify="left")
    table.add_column("replica", overflow="fold", min_width=9)
    table.add_column("fill", no_wrap=True)
    for heading in ("tokens", "of", "slots", "placed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("sessions", overflow="fold", min_width=8)
    weights = {item.id: item.weight_tokens for item in problem.items}
    inside = _sessions_of(answer.assignment)
    for knapsack in problem.knapsacks:
        sessions = inside.get(knapsack.id, [])
        used = sum(weights[session] for session in sessions)
        slots = "-" if knapsack.slots is None else f"{len(sessions)}/{knapsack.slots}"
        table.add_row(
            Text(shown(knapsack.id)),
            Text(bar(used, knapsack.capacity_tokens)),
            f"{used:,}",
            f"{knapsack.capacity_tokens:,}",
            slots,
            str(len(sessions)),
            Text(shown(_names(sessions))),
        )
    return table


def _values(answer: Answer) -> Table:
    table = Table(title="Value", title_justify="left")
    table.add_column("coordinate")
    for heading in ("plan", "upper bound", "gap"):
        table.add_column(heading, justify="right")
    for name, value, bound in zip(answer.objective._fields, answer.objective, answer.bound, strict=True):
        gap = "proved" if value == bound else f"{(bound - value) / bound:.2%}"
        table.add_row(name, f"{value:,}", f"{bound:,}", gap)
    return table


def _sessions_of(assignment: Mapping[str, str]) -> dict[str, list[str]]:
    inside: dict[str, list[str]] = {}
    for session, replica in assignment.items():
        inside.setdefault(replica, []).append(session)
    return inside


def _names(sessions: list[str]) -> str:
    shown = " ".join(sessions[:NAMES_MAX])
    more = len(sessions) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def bar(used: int, capacity: int) -> str:
    """A bar of `BAR_CELLS` characters, filled to an eighth of a character, and the share in per cent."""
    share = used / capacity if capacity else 0.0
    eighths = round(share * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (EIGHTHS[rest] if rest else "")
    return f"{drawn.ljust(BAR_CELLS, '·')} {share:4.0%}"
