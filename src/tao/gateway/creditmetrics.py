"""What `/metrics` shows of credit: what is left of prefixes, as measured, and how well each way to expect has foretold it.

It must not know how either is learned.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao.gateway.gauges import Described
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

    def collect(self) -> Iterator[Metric]:
        returns, prefix, error, calibration, survival = CREDIT
        families = {
            of.name: CounterMetricFamily(of.name, of.text, labels=of.labels)
            for of in (returns, prefix, error)
        }
        errors = GaugeMetricFamily(calibration.name, calibration.text, labels=calibration.labels)
        for name, known in self._survival.calibration.by_name.items():
            families[returns.name].add_metric((name,), known.returns)
            families[prefix.name].add_metric((name,), known.prefix_tokens)
            families[error.name].add_metric((name,), known.error_tokens)
            errors.add_metric((name,), known.calibration_error)
        yield from families.values()
        yield errors
        shares = GaugeMetricFamily(survival.name, survival.text, labels=survival.labels)
        for replica, curve in self._survival.curves.items():
            for turnover, share in curve.points():
                shares.add_metric((replica, f"{turnover:g}"), share)
        yield shares
