"""`tao predict`: how well tool returns are predicted, on recorded sessions. Options in, one table out.

What is measured lives in `tao.report.prediction`; this file only wires and shows.
"""

import json
from collections.abc import Sequence

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tao.cli.runs import check_output, write_text
from tao.policies.readiness import ReadyRule
from tao.policies.returns import DEFAULT_PREDICTOR, PREDICTORS, UnknownPredictorError, make_predictor
from tao.report.prediction import (
    PredictorReport,
    RecordedAbsence,
    absences_of,
    evaluate,
    evaluate_oracle,
    train,
)
from tao.report.predictionscore import Score
from tao.report.terminal import console_for_tables, shown
from tao.traces import TraceError, path_named, read_trace

TOOLS_SHOWN = 15
COLUMNS = (
    "calls",
    "error\nat start",
    "error at\ndecisions",
    "within\n0.5 s",
    "pinball\nloss",
    "preci-\nsion",
    "recall",
    "lead",
    "50 %",
    "80 %",
    "95 %",
)


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--train",
    "training",
    multiple=True,
    metavar="TRACE",
    help="Learn from this trace first; may be given several times.",
)
@click.option(
    "--predictor",
    default=DEFAULT_PREDICTOR,
    show_default=True,
    metavar="NAME",
    help=f"Show this one by tool: {', '.join(PREDICTORS)}.",
)
@click.option("--json", "json_path", metavar="OUT", help="Write the figures to this file; - for the output.")
def command(
    traces: tuple[str, ...], training: tuple[str, ...], predictor: str, json_path: str | None
) -> None:
    """Predict when recorded tool calls return, and say how well.

    TRACE is a trace in any format that tao reads, or the word "sample". Every predictor sees the calls in the order of
    time and learns as they end; each is judged at the start of a call and at every second of it. Several files are one
    stream. The oracle knows the durations. Waits for a human are not counted.

    Exit code: 0; 2 for bad input.
    """
    try:
        make_predictor(predictor)
        check_output(json_path, (*traces, *training))
        tested = _read(traces)
        taught = _read(training)
    except (UnknownPredictorError, TraceError, OSError) as error:
        raise click.UsageError(str(error)) from error
    if not any(one.absence.tools for one in tested):
        raise click.UsageError("there is no tool call in these traces: nothing to predict")
    reports = all_reports(tested, taught)
    if json_path is not None:
        write_text(json_path, json.dumps(document(reports), indent=2, allow_nan=False) + "\n")
    if json_path != "-":
        console = console_for_tables()
        console.print(_overall(reports))
        console.print(_by_tool(next(report for report in reports if report.predictor == predictor)))


def all_reports(
    tested: Sequence[RecordedAbsence], taught: Sequence[RecordedAbsence]
) -> list[PredictorReport]:
    """One report for each known predictor, trained on `taught`, and the oracle's last."""
    rule = ReadyRule()
    reports: list[PredictorReport] = []
    for name in PREDICTORS:
        predictor = make_predictor(name)
        train(predictor, taught)
        reports.append(evaluate(predictor, tested, rule))
    return [*reports, evaluate_oracle(tested, rule)]


def document(reports: Sequence[PredictorReport]) -> dict[str, object]:
    """The JSON of docs/readiness.md. `default_precision`: of the default predictor, at the recall of this one."""
    default = next(report for report in reports if report.predictor == DEFAULT_PREDICTOR)
    entries: list[dict[str, object]] = []
    for report in reports:
        entry: dict[str, object] = {"predictor": report.predictor, **report.overall.to_json()}
        entry["default_precision_at_equal_recall"] = default.overall.precision_at(report.overall.recall)
        entry["tools"] = {name: score.to_json() for name, score in report.by_tool.items()}
        entries.append(entry)
    return {"default": DEFAULT_PREDICTOR, "predictors": entries}


def _read(names: Sequence[str]) -> list[RecordedAbsence]:
    """The absences of all files, as if they had been recorded at the same time."""
    paths = [path_named(name) for name in names]
    return [one for path in paths for one in absences_of(read_trace(path))]


def _overall(reports: Sequence[PredictorReport]) -> Table:
    first = reports[0].overall
    table = Table(
        title=f"{first.calls:,} tool calls, {first.moments:,} decision moments (seconds)",
        caption=f"default's: precision of {DEFAULT_PREDICTOR} at the recall of the line; %: share within that interval",
        box=SIMPLE_HEAD,
    )
    _columns(table, "predictor")
    table.add_column("default's", justify="right")
    default = next(report for report in reports if report.predictor == DEFAULT_PREDICTOR)
    for report in reports:
        at_recall = default.overall.precision_at(report.overall.recall)
        table.add_row(report.predictor, *_cells(report.overall), f"{at_recall:.3f}")
    return table


def _by_tool(report: PredictorReport) -> Table:
    table = Table(title=f"{report.predictor} by tool (seconds)", box=SIMPLE_HEAD)
    _columns(table, "tool")
    ranked = sorted(report.by_tool.items(), key=lambda item: (-item[1].calls, item[0]))
    for name, score in ranked[:TOOLS_SHOWN]:
        table.add_row(shown(name), *_cells(score))
    return table


def _columns(table: Table, first: str) -> None:
    table.add_column(first, no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")


def _cells(score: Score) -> list[str]:
    return [
        f"{score.calls:,}",
        f"{score.mean_absolute_error_seconds:.3f}",
        f"{score.decision_error_seconds:.2f}",
        f"{score.within_half_second:.3f}",
        f"{score.pinball_loss_seconds:.3f}",
        f"{score.precision:.3f}",
        f"{score.recall:.3f}",
        f"{score.lead_seconds:.2f}",
        *(f"{share:.3f}" for share in score.coverage.values()),
    ]
