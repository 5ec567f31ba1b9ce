"""The tables of docs/readiness.md: every predictor on each source of recorded calls, trained on all the others only.

`python benchmarks/predictions.py TRACE...` prints Markdown and writes benchmarks/results/predictions.json. A source is a
file; those with fewer than 1,000 calls are measured together. The figures are those of `tao predict`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tao.cli.predict import all_reports, document
from tao.policies.returns import DEFAULT_PREDICTOR
from tao.report.prediction import PredictorReport, RecordedAbsence, absences_of
from tao.traces import read_trace

RESULTS = Path(__file__).parent / "results" / "predictions.json"
CALLS_LEAST = 1_000
HEADINGS = (
    "predictor | error at start | error at decisions | within 0.5 s | pinball loss | precision | recall | "
    "our precision at this recall | lead | 50 % | 80 % | 95 %"
)


def calls_of(recorded: Sequence[RecordedAbsence]) -> int:
    """Waits for a human are no calls."""
    return sum(bool(one.absence.tools) for one in recorded)


def groups(sources: Mapping[str, Sequence[RecordedAbsence]]) -> Iterator[tuple[str, ...]]:
    """Names of the sources that are measured together."""
    large = [name for name, recorded in sources.items() if calls_of(recorded) >= CALLS_LEAST]
    yield from ((name,) for name in large)
    small = tuple(name for name in sources if name not in large)
    if small:
        yield small


def markdown(names: Sequence[str], reports: Sequence[PredictorReport]) -> Iterator[str]:
    """One table."""
    default = next(report.overall for report in reports if report.predictor == DEFAULT_PREDICTOR)
    yield f"**{', '.join(names)}**, {default.calls:,} calls"
    yield ""
    yield f"| {HEADINGS} |"
    yield "|" + "---|" * (HEADINGS.count("|") + 1)
    for report in reports:
        score = report.overall
        at_recall = "" if score is default else f"{default.precision_at(score.recall):.3f}"
        cells = (
            f"`{report.predictor}`",
            f"{score.mean_absolute_error_seconds:.3f}",
            f"{score.decision_error_seconds:.2f}",
            f"{score.within_half_second:.3f}",
            f"{score.pinball_loss_seconds:.3f}",
            f"{score.precision:.3f}",
            f"{score.recall:.3f}",
            at_recall,
            f"{score.lead_seconds:.2f}",
            *(f"{share:.3f}" for share in score.coverage.values()),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def main() -> None:
    """Print the tables, keep the figures."""
    if len(sys.argv) < 3:
        sys.exit("give at least two traces: each is predicted from the others")
    sources = {
        Path(path).name.removesuffix(".jsonl.gz"): absences_of(read_trace(Path(path)))
        for path in sys.argv[1:]
    }
    kept: dict[str, object] = {}
    for names in groups(sources):
        tested = [one for name in names for one in sources[name]]
        taught = [one for name in sources if name not in names for one in sources[name]]
        reports = all_reports(tested, taught)
        print("\n".join(markdown(names, reports)), flush=True)
        told = document(reports)
        for entry in told["predictors"]:  # type: ignore[attr-defined]
            del entry["tools"]
        kept["+".join(names)] = told
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
