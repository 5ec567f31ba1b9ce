"""The learned state as JSON-ready data: sketches there and back, every value checked.

No I/O: where the data is kept, and what happens to a file that cannot be read, is the affair of whoever calls.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from math import isfinite
from typing import TypeVar

from tao.policies.returns.bins import BIN_COUNT
from tao.policies.returns.port import Exporting, LearnedStateError
from tao.policies.returns.sketch import Sketch

T = TypeVar("T")
WEIGHT_MAX = 2.0**20
ROWS_OF_STEP = 16


def sketch_to_json(sketch: Sketch) -> list[list[float]]:
    """`[[bin, weight], ...]`, empty bins left out."""
    return [[index, round(mass, 4)] for index, mass in enumerate(sketch.masses) if mass > 5e-5]


def rows_in_steps(
    sketches: Sequence[tuple[Hashable, Sketch]],
) -> Generator[None, None, list[list[object]]]:
    """`[[key, sketch], ...]`, some rows a step."""
    rows: list[list[object]] = []
    for key, sketch in sketches:
        rows.append([key, sketch_to_json(sketch)])
        if len(rows) % ROWS_OF_STEP == 0:
            yield
    return rows


def in_one_step(exporting: Exporting) -> dict[str, object]:
    """The state at the end of an export."""
    while True:
        try:
            next(exporting)
        except StopIteration as end:
            state: dict[str, object] = end.value
            return state


def sketch_from_json(pairs: object) -> Sketch:
    """Raises `LearnedStateError` for anything that `sketch_to_json` does not make."""
    if not isinstance(pairs, list):
        raise LearnedStateError(f"a histogram is a list of pairs, not {type(pairs).__name__}")
    masses = [0.0] * BIN_COUNT
    for pair in pairs:
        index, mass = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not (type(index) is int and 0 <= index < BIN_COUNT):
            raise LearnedStateError(f"a histogram has no bin {index!r}")
        masses[index] = checked_number(mass)
    return Sketch.of(masses)


def checked_number(value: object, most: float = WEIGHT_MAX) -> float:
    """A finite number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise LearnedStateError(f"not a number: {value!r}")
    if not 0 <= value <= most:
        raise LearnedStateError(f"out of range: {value!r}")
    return float(value)


def state_section(state: Mapping[str, object], name: str, kind: type[T]) -> T:
    """A part of the state by name."""
    section = state.get(name)
    if not isinstance(section, kind):
        raise LearnedStateError(f"{name!r} is missing or not a {kind.__name__}")
    return section
