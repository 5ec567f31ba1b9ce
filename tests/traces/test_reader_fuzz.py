"""No reader crashes or hangs on what is almost its format: a value is read, or the line is named.

Each example takes the format's own small file and breaks it: a value replaced by another one, a key dropped, a line
cut, doubled or moved. And the reading is the same each time.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tao.traces import FORMATS as KNOWN
from tao.traces import SkippedLines, TraceError, detect_format, read_trace
from tests.traces.test_readers import TRACES

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    2**63,
    1e300,
    0.5,
    "",
    "x",
    "2026-06-01T05:40:20Z",
    "not a time",
    [],
    [1],
    {},
    {"a": []},
]
FORMATS = sorted(TRACES)


def lines_of(name: str) -> list[str]:
    if name == "weka":
        return [json.dumps(json.loads(TRACES[name].read_text()))]
    path = TRACES[name]
    files = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
    return [line for file in files for line in file.read_text().splitlines()]


def break_value(value: Any, rng: random.Random) -> Any:
    """Replace, drop or double one place somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: break_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        if rng.random() < 0.15:
            return [*value[:place], *value[place + 1 :]]
        return [*value[:place], break_value(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD)


def broken(lines: list[str], rng: random.Random) -> list[str]:
    lines = list(lines)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(lines))
        kind = rng.random()
        if kind < 0.75:
            try:
                lines[place] = json.dumps(break_value(json.loads(lines[place]), rng))
            except json.JSONDecodeError:
                continue
        elif kind < 0.85:
            lines[place] = lines[place][: rng.randrange(len(lines[place]) or 1)]
        elif kind < 0.95:
            lines.insert(rng.randrange(len(lines)), lines[place])
        else:
            lines[place] = ""
    return lines


@pytest.mark.parametrize("name", FORMATS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_almost_the_format_is_read_or_named(name: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("\n".join(broken(lines_of(name), random.Random(seed))) + "\n")
    skipped = SkippedLines()
    sessions = list(read_trace(path, trace_format=name, on_bad_line=skipped))
    assert all(session.turns for session in sessions)
    try:
        strict = list(read_trace(path, trace_format=name))
    except TraceError as error:
        assert skipped.count > 0
        assert str(error) == str(skipped.first[0])  # noqa: PT017 - either outcome is right
    else:
        assert skipped.count == 0
        assert strict == sessions


@pytest.mark.parametrize("name", FORMATS)
@given(
    content=st.binary(max_size=200)
    | st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_at_all_is_read_or_named(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    try:
        list(read_trace(path, trace_format=name, on_bad_line=SkippedLines()))
    except TraceError as error:
        assert content.startswith(b"\x1f\x8b")
        assert "damaged" in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", FORMATS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_format_of_almost_a_trace_is_recognised_or_refused(name: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("\n".join(broken(lines_of(name), random.Random(seed))) + "\n")
    try:
        found = detect_format(path)
    except TraceError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found in KNOWN
