"""The table and the plot of runs: pairs by repeat, failed runs told and left out."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from benchmarks.live.page import PAGE, replaced
from benchmarks.live.report import comparisons, medians, plot, row_text, table
from tao.report.statistics import Verdict


def row(peer: str, repeat: int, latency: float, hit_rate: float = 0.5) -> dict[str, Any]:
    seconds = {"mean": latency, "p50": latency / 2}
    replay = {"latency_seconds": seconds, "ttft_seconds": seconds, "makespan_seconds": 2 * latency}
    return {"peer": peer, "repeat": repeat, "engine_hit_rate": hit_rate, "replay": replay}


ROWS = [
    *(row("round-robin", repeat, 100.0 + repeat, 0.4) for repeat in range(5)),
    *(row("tao", repeat, 50.0 + repeat, 0.9) for repeat in range(5)),
]


def test_medians_are_by_peer_and_metric() -> None:
    found = medians(ROWS)
    assert list(found) == ["round-robin", "tao"]
    assert found["tao"]["latency_mean"].value == 52.0
    assert found["tao"]["latency_p50"].value == 26.0
    assert found["round-robin"]["makespan"].value == 204.0


def test_half_the_latency_is_a_win_and_so_are_more_hits() -> None:
    compared = comparisons(ROWS)
    assert list(compared) == ["round-robin"]
    verdicts = [one.verdict for one in compared["round-robin"].values()]
    assert verdicts == [Verdict.WIN] * 4


def test_a_failed_run_takes_its_repeat_out_of_the_pairs() -> None:
    rows = [{"peer": "tao", "repeat": 4, "error": "stuck"} if r is ROWS[-1] else r for r in ROWS]
    assert medians(rows)["tao"]["latency_mean"].count == 4
    assert comparisons(rows)["round-robin"]["latency_mean"].difference.count == 4
    assert "tao (1 runs failed)" in table(rows)
    assert "FAILED: stuck" in row_text(rows[-1])


def test_a_peer_that_never_succeeded_has_a_row_of_dashes() -> None:
    rows = [*ROWS, {"peer": "broken", "repeat": 0, "error": "did not start"}]
    assert "| broken (1 runs failed) | - | - |" in table(rows)
    assert "broken" not in comparisons(rows)
    ET.fromstring(plot(rows))


def test_the_table_has_a_row_for_each_peer_and_each_comparison() -> None:
    text = table(ROWS)
    assert "| tao | 52.0 [50.0, 54.0] |" in text
    assert "| round-robin | -49% ± 1%, win |" in text


def test_the_plot_is_well_formed_and_stays_inside() -> None:
    drawing = ET.fromstring(plot([*ROWS, row("a<b", 0, 500.0)]))
    width, height = map(float, drawing.attrib["viewBox"].split()[2:])
    circles = [element for element in drawing.iter() if element.tag.endswith("circle")]
    assert len(circles) == 3 * (11 + 3)  # every run and every median, in three panels
    assert all(0 < float(c.attrib["cx"]) < width and 0 < float(c.attrib["cy"]) < height for c in circles)


def test_one_run_is_told_in_a_line() -> None:
    assert "repeat 1, tao: session latency, mean, s 50.0" in row_text(ROWS[5])


def test_a_run_renews_its_own_block_of_the_page() -> None:
    text = "".join(
        f"<!-- measured: {name} -->\nold {name}\n<!-- end of measured -->\n\nkept\n" for name in ("a", "b")
    )
    renewed = replaced(text, "a", "| new |\n")
    assert "old a" not in renewed
    assert "<!-- measured: a -->\n\n| new |\n\n<!-- end of measured -->\n\nkept\n" in renewed
    assert renewed.endswith("<!-- measured: b -->\nold b\n<!-- end of measured -->\n\nkept\n")
    assert replaced(renewed, "a", "| new |") == renewed
    with pytest.raises(ValueError, match="no block <!-- measured: c"):
        replaced(text, "c", "")


def test_the_page_has_the_blocks_of_both_parts() -> None:
    text = PAGE.read_text()
    for block in ("routers", "engines"):
        assert replaced(text, block, "x") != text
