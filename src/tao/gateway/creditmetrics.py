"""What `/metrics` shows of credit: what is left of prefixes, as measured, and how well each way to expect has foretold it.

It must not know how either is learned.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tao.gateway.gauges import Described, Rows
from tao.policies.survival import MeasuredSurvival

CREDIT = (
    Described(
        "tao_credit_returns_total",
        "Returns to a replica whose cache was expected to hold something; expected by half-life, survival or kv-events",
        ("expected_by",),
    ),
    Described(
        "tao_credit_prefix_tokens_total", "Tokens that these sessions had left there", ("expected_by",)
    ),
    Described(
        "tao_credit_error_tokens_total",
        "Of these, wrongly expected to be there or to be gone",
        ("expected_by",),
    ),
    Described(
        "tao_credit_calibration_error",
        "Mean distance between the share expected and the share found, over ten bins; 0 is perfect",
        ("expected_by",),
    ),
    Described(
        "tao_prefix_survival",
        "Share of a prefix expected to be left once so many times the capacity has flowed into the replica",
        ("replica", "turnover"),
    ),
)


class CreditSoFar(Collector):
    """The figures of what a policy measures."""

    def __init__(self, survival: MeasuredSurvival) -> None:
        self._survival = survival
        self._calibration = survival.judged()

    def collect(self) -> Iterator[Metric]:
        rows = self._rows()
        yield from (of.metric(rows[of.name]) for of in CREDIT)

    def _rows(self) -> dict[str, Rows]:
        known = list(self._calibration.by_name.items())
        return {
            "tao_credit_returns_total": [((name,), of.returns) for name, of in known],
            "tao_credit_prefix_tokens_total": [((name,), of.prefix_tokens) for name, of in known],
            "tao_credit_error_tokens_total": [((name,), of.error_tokens) for name, of in known],
            "tao_credit_calibration_error": [((name,), of.calibration_error) for name, of in known],
            "tao_prefix_survival": [
                ((replica, f"{turnover:g}"), share)
                for replica, curve in self._survival.curves.items()
                for turnover, share in curve.points()
            ],
        }
