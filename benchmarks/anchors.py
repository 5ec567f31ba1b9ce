"""The engine model beside published measurements of whole engines: TPOT and TTFT by concurrency, errors in percent.

usage: python benchmarks/anchors.py [--json FILE] [--markdown]
Each anchor is a closed loop: C clients, each sends its next request when its last one has ended. Output lengths differ by
up to a tenth, or all clients would go in step for ever. How a reading is to be taken, and which profile was scaled to what,
is in docs/validation.md.
"""

import argparse
import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from tao.enginemodel import Chain, EngineModel, Finished, FirstToken, Profile, Request, load_profile

GLM_SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/11559"
FLASH_SOURCE = "https://github.com/sgl-project/sglang/pull/33109"
ROUNDS = 5
"""Requests of one client; the first and the last are not counted: they start or end together with all others'."""

LENGTH_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Anchor:
    """One published measurement; None where it is no anchor."""

    concurrency: int
    tpot_ms: float | None
    ttft_ms: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Measurements of one engine with one shape of requests."""

    title: str
    profile: str
    source: str
    prompt_tokens: int
    output_tokens: int
    anchors: tuple[Anchor, ...]


# At 128 clients 1,578 ms and at 256 clients 888 ms were published: a start-up burst in one of them, so neither counts.
SERIES = (
    Series(
        "GLM-4.7 FP8, 8 x H100, TensorRT-LLM, 1k/1k",
        "glm-4.7-tp8-h100",
        GLM_SOURCE,
        1024,
        1024,
        (
            Anchor(4, 19.8, 354),
            Anchor(8, 22.3, 353),
            Anchor(16, 26.1, 355),
            Anchor(32, 31.2, 359),
            Anchor(64, 35.4, 412),
            Anchor(128, 39.3, None),
            Anchor(256, 55.8, None),
        ),
    ),
    Series(
        "GLM-4.7 FP8, 8 x H100, TensorRT-LLM, 1k/8k",
        "glm-4.7-tp8-h100",
        GLM_SOURCE,
        1024,
        8192,
        (Anchor(4, 20.2, 397), Anchor(16, 26.0, 762), Anchor(64, 34.8, 1433), Anchor(128, 40.2, 2684)),
    ),
    Series(
        "DeepSeek-V4-Flash, 4 x H200 (the profile: 4 x H100), SGLang, 8k/1k",
        "deepseek-v4-flash-tp4-h100",
        FLASH_SOURCE,
        8192,
        1024,
        (Anchor(16, 8.39, 662), Anchor(64, 38.1, 1618), Anchor(256, 104.5, 1932)),
    ),
)


@dataclass(frozen=True, slots=True)
class Loop:
    """Means of a closed loop in the model. `ttft_ms`: in its steady state; `burst_ttft_ms`: of its first requests, which all
    arrive at once.
    """

    tpot_ms: float
    ttft_ms: float
    burst_ttft_ms: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One anchor beside the model. Errors are (model - measured) / measured."""

    series: str
    anchor: Anchor
    model: Loop

    @property
    def tpot_error(self) -> float | None:
        return _error(self.model.tpot_ms, self.anchor.tpot_ms)

    @property
    def ttft_error(self) -> float | None:
        return _error(self.model.ttft_ms, self.anchor.ttft_ms)

    @property
    def burst_ttft_error(self) -> float | None:
        return _error(self.model.burst_ttft_ms, self.anchor.ttft_ms)


def _error(model: float, measured: float | None) -> float | None:
    return None if measured is None else model / measured - 1


@dataclass(slots=True)
class _Sent:
    client: int
    round: int
    at: float
    output_tokens: int
    first_at: float = 0.0


def closed_loop(profile: Profile, concurrency: int, prompt_tokens: int, output_tokens: int) -> Loop:
    """`concurrency` clients, each with `ROUNDS` requests without a shared prefix."""
    model, chance = EngineModel(profile), random.Random(0)
    sent: dict[str, _Sent] = {}
    tpots: list[float] = []
    ttfts: list[float] = []
    burst_ttfts: list[float] = []
    due = [(0.0, client, 0) for client in range(concurrency)]
    while due or sent:
        ends_at = model.next_event_at()
        if due and (ends_at is None or due[0][0] <= ends_at):
            at, client, turn = heapq.heappop(due)
            name = f"{client}/{turn}"
            length = round(output_tokens * chance.uniform(1 - LENGTH_SPREAD, 1 + LENGTH_SPREAD))
            sent[name] = _Sent(client, turn, at, length)
            model.submit(at, Request(name, Chain.of([(name, prompt_tokens)]), length))
            continue
        assert ends_at is not None
        for event in model.advance(ends_at):
            one = sent[event.request_id]
            if isinstance(event, FirstToken):
                one.first_at = event.at
                if one.round == 0:
                    burst_ttfts.append(1e3 * (event.at - one.at))
            elif isinstance(event, Finished):
                del sent[event.request_id]
                if 0 < one.round < ROUNDS - 1:
                    ttfts.append(1e3 * (one.first_at - one.at))
                    tpots.append(1e3 * (event.at - one.first_at) / (one.output_tokens - 1))
                if one.round + 1 < ROUNDS:
                    heapq.heappush(due, (event.at, one.client, one.round + 1))
    return Loop(fmean(tpots), fmean(ttfts), fmean(burst_ttfts))


def scaled(profile: Profile, factor: float) -> Profile:
    """The profile with the constant part of its decode step times `factor`."""
    return replace(
        profile, decode_base_ms=tuple((batch, ms * factor) for batch, ms in profile.decode_base_ms)
    )


def compare(series: Series, factor: float = 1.0) -> Iterator[Comparison]:
    """Every anchor of the series beside the model."""
    profile = scaled(load_profile(series.profile), factor)
    for anchor in series.anchors:
        model = closed_loop(profile, anchor.concurrency, series.prompt_tokens, series.output_tokens)
        yield Comparison(series.title, anchor, model)


def mean_tpot_error(rows: list[Comparison]) -> float:
    """The mean of the sizes of the TPOT errors."""
    return fmean(abs(row.tpot_error) for row in rows if row.tpot_error is not None)


HEADINGS = ("clients", "TPOT", "model", "error", "TTFT", "steady", "error", "burst", "error")


def cells(row: Comparison) -> tuple[str, ...]:
    """A line of a table; milliseconds."""
    anchor, model = row.anchor, row.model
    tpot, ttft = ("-" if ms is None else f"{ms:g}" for ms in (anchor.tpot_ms, anchor.ttft_ms))
    tpot_error, steady_error, burst_error = (
        "-" if error is None else f"{error:+.0%}"
        for error in (row.tpot_error, row.ttft_error, row.burst_ttft_error)
    )
    decode = (str(anchor.concurrency), tpot, f"{model.tpot_ms:.1f}", tpot_error)
    return (*decode, ttft, f"{model.ttft_ms:.0f}", steady_error, f"{model.burst_ttft_ms:.0f}", burst_error)


def main() -> None:
    """Compute and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="tables as the documentation has them")
    options = parser.parse_args()
    results = {series.title: list(compare(series)) for series in SERIES}
    console = Console(width=120)
    for title, rows in results.items():
        if options.markdown:
            print(f"{title}\n\n| {' | '.join(HEADINGS)} |\n|{'---:|' * len(HEADINGS)}")
            print("\n".join(f"| {' | '.join(cells(row))} |" for row in rows), end="\n\n")
        else:
            table = Table(*HEADINGS, title=title)
            for row in rows:
                table.add_row(*cells(row))
            console.print(table)
        print(f"mean size of the TPOT errors: {mean_tpot_error(rows):.0%}\n")
    if options.json is not None:
        rows_of = [
            {
                **asdict(row),
                "tpot_error": row.tpot_error,
                "ttft_error": row.ttft_error,
                "burst_ttft_error": row.burst_ttft_error,
            }
            for rows in results.values()
            for row in rows
        ]
        options.json.write_text(json.dumps({"rows": rows_of}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
