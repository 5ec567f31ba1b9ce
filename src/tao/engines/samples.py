"""Samples of a Prometheus page, line by line: a bad line is named and left out, the others still count.

Only the wanted names are parsed (a page of a busy engine is mostly histogram buckets), by the parser of
prometheus-client, so that scientific notation, infinities and escapes in labels read as they should. It must not know
engines.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

PAGE_BYTES_MAX = 8 << 20
LINES_MAX = 8192
"""So many wanted lines are parsed: a thousand ranks have fewer."""
PROBLEMS_MAX = 8
"""So many are named; of more their number."""
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: its labels and value (finite)."""

    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class Samples:
    """The wanted samples of one page, by name, and what was wrong with it."""

    by_name: dict[str, list[Sample]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    """Names of which a line was left out."""
    problems: list[str] = field(default_factory=list)

    def first_of(self, names: Iterable[str]) -> list[Sample]:
        """The samples of the first of `names` that the page has: newer names before older ones."""
        return next((self.by_name[name] for name in names if name in self.by_name), [])


def read_samples(page: bytes, wanted: frozenset[str]) -> Samples:
    """The samples of `page` whose name is in `wanted`."""
    samples = Samples()
    if len(page) > PAGE_BYTES_MAX:
        samples.problems.append(
            f"metrics page of {len(page)} bytes: only the first {PAGE_BYTES_MAX} were read"
        )
        page = page[
            : page.rfind(b"\n", 0, PAGE_BYTES_MAX) + 1
        ]  # no half line, whose number would be another one
    text = page.decode("utf-8", "replace")
    found = 0
    for number, line in enumerate(text.split("\n"), start=1):
        name = _name(line)
        if name in wanted:
            found += 1
            if found <= LINES_MAX:
                _read(samples, name, line.strip(), number)
            else:
                samples.unreadable.add(name)
    if found > LINES_MAX:
        samples.problems.insert(
            0, f"of {found} metrics lines that count only the first {LINES_MAX} were read"
        )
    left_out = len(samples.problems) - PROBLEMS_MAX
    if left_out > 0:
        samples.problems[PROBLEMS_MAX:] = [f"and {left_out} more problems of the metrics page"]
    return samples


def _name(line: str) -> str:
    stripped = line.lstrip()
    end = min((at for at in map(stripped.find, "{ \t") if at >= 0), default=len(stripped))
    return stripped[:end].rstrip("\r")


def _read(samples: Samples, name: str, line: str, number: int) -> None:
    try:
        found = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        # The parser documents ValueError only; a line cut in the middle makes it raise others.
        found = []
    if len(found) != 1:
        samples.unreadable.add(name)
        samples.problems.append(f"metrics line {number} is unreadable: {line[:_SHOWN_CHARS]!r}")
        return
    sample = found[0]
    if not math.isfinite(sample.value):
        samples.unreadable.add(name)
        samples.problems.append(f"{name} is {sample.value} (metrics line {number})")
        return
    samples.by_name.setdefault(name, []).append(Sample(dict(sample.labels), float(sample.value)))
