"""How well the cache was foretold in a run: read from TAO's metrics page, shown as medians over the runs."""

from typing import Any

import pytest

from benchmarks.live.calibration import credit_of, credit_table

PAGE = """\
# TYPE tao_credit_returns counter
tao_credit_returns_total{expected_by="half-life"} 179.0
tao_credit_returns_total{expected_by="survival"} 179.0
tao_credit_returns_total{expected_by="kv-events"} 3.0
# TYPE tao_credit_prefix_tokens counter
tao_credit_prefix_tokens_total{expected_by="half-life"} 208000.0
tao_credit_prefix_tokens_total{expected_by="survival"} 208000.0
# TYPE tao_credit_error_tokens counter
tao_credit_error_tokens_total{expected_by="half-life"} 10400.0
tao_credit_error_tokens_total{expected_by="survival"} 5200.0
# TYPE tao_credit_calibration_error gauge
tao_credit_calibration_error{expected_by="half-life"} 0.064
tao_credit_calibration_error{expected_by="survival"} 0.015
"""


def test_a_page_tells_both_ways() -> None:
    told = credit_of(PAGE)
    assert told["half-life"] == {"returns": 179.0, "calibration_error": 0.064, "error_share": 0.05}
    assert told["survival"] == {"returns": 179.0, "calibration_error": 0.015, "error_share": 0.025}
    assert set(told) == {"half-life", "survival"}


@pytest.mark.parametrize(
    "page",
    ["", "up 1\n", 'tao_credit_prefix_tokens_total{expected_by="survival"} 0\n'],
    ids=["empty", "of another server", "no return yet"],
)
def test_a_page_without_returns_tells_nothing(page: str) -> None:
    assert credit_of(page) == {}


def test_medians_over_the_runs_that_tell() -> None:
    rows: list[dict[str, Any]] = [
        {"peer": "round-robin"},
        {"peer": "tao", "credit": credit_of(PAGE)},
        {"peer": "tao", "credit": credit_of(PAGE.replace("0.015", "0.025"))},
        {"peer": "tao", "credit": {}},
        {"peer": "tao", "error": "stuck"},
    ]
    table = credit_table(rows)
    assert "| tao | halved every 10 s | 0.064 [0.064, 0.064] | 5.0% [5.0%, 5.0%] |" in table
    assert "| tao | measured survival | 0.020 [0.015, 0.025] | 2.5% [2.5%, 2.5%] |" in table
    assert "round-robin" not in table
    assert credit_table([{"peer": "round-robin"}]) == ""
