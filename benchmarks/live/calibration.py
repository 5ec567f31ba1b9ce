"""What TAO expected of the replicas' caches in a run, against what returning sessions found there.

Read from the metrics page that `tao serve` shows at the end of a run. It must not know how a run is made.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.live.figures import median

WAYS = {"half-life": "halved every 10 s", "survival": "measured survival"}


def credit_of(page: str) -> dict[str, dict[str, float]]:
    """By way of expecting: `returns`, `calibration_error` (0 to 1) and `error_share` of the tokens left behind.

    Empty for a page that is not of a policy with credit, or without returns.
    """
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            way = sample.labels.get("expected_by")
            if way in WAYS and sample.name.startswith("tao_credit_"):
                found.setdefault(way, {})[sample.name.removeprefix("tao_credit_")] = sample.value
    return {
        way: {
            "returns": one["returns_total"],
            "calibration_error": one["calibration_error"],
            "error_share": one["error_tokens_total"] / one["prefix_tokens_total"],
        }
        for way, one in found.items()
        if one.get("prefix_tokens_total") and "calibration_error" in one
    }


def credit_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: medians over the runs that tell; empty where none does."""
    lines = []
    for peer in dict.fromkeys(row["peer"] for row in rows if row.get("credit")):
        told = [row["credit"] for row in rows if row["peer"] == peer and row.get("credit")]
        for way, title in WAYS.items():
            ones = [credit[way] for credit in told if way in credit]
            if ones:
                error, share = (
                    median([one[key] for one in ones]) for key in ("calibration_error", "error_share")
                )
                lines.append(f"| {peer} | {title} | {error:.3f} | {share:.1%} |")
    if not lines:
        return ""
    head = ["| through | the cache is expected by | calibration error | mean error |", "|---|---|---|---|"]
    return "\n".join([*head, *lines]) + "\n"
