"""A histogram that forgets: the newest observations weigh more, and its total weight is bounded.

Two sketches with the same bins can be merged by adding them. `SketchTable` keeps a bounded number of them.
"""

from array import array
from collections.abc import Hashable, Iterator, Sequence

from tao.policies.returns.bins import BIN_COUNT, bin_of

_EMPTY = (0.0,) * BIN_COUNT


class Sketch:
    """Weights by bin. `weight` is their sum."""

    __slots__ = ("masses", "weight")

    def __init__(self, masses: Sequence[float] = _EMPTY) -> None:
        self.masses = array("f", masses)
        self.weight = float(sum(self.masses))

    def add(self, seconds: float, weight_max: float) -> None:
        """One more duration. At `weight_max` the older ones fade by as much as comes in (exponential forgetting)."""
        if self.weight >= 2.0 * weight_max:
            self._fade(weight_max / self.weight)
        self.masses[bin_of(seconds)] += 1.0
        self.weight += 1.0

    def add_masses(self, masses: Sequence[float], weight_max: float) -> None:
        """An observation whose duration is known as chances by bin only."""
        if self.weight >= 2.0 * weight_max:
            self._fade(weight_max / self.weight)
        for index, mass in enumerate(masses):
            self.masses[index] += mass
        self.weight += sum(masses)

    def merge(self, other: "Sketch") -> None:
        """Take over what another sketch has seen."""
        self.add_masses(other.masses, float("inf"))

    def _fade(self, factor: float) -> None:
        self.masses = array("f", [mass * factor for mass in self.masses])
        self.weight *= factor


class SketchTable:
    """Sketches by key, at most `sketches_max`: the one that was learned of longest ago gives way."""

    def __init__(self, sketches_max: int, weight_max: float) -> None:
        self._sketches_max = sketches_max
        self._weight_max = weight_max
        self._by_key: dict[Hashable, Sketch] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Hashable) -> Sketch | None:
        """The sketch of a key, if there is one."""
        return self._by_key.get(key)

    def touched(self, key: Hashable) -> Sketch:
        """The sketch of a key, made if need be, and now the newest."""
        sketch = self._by_key.pop(key, None)
        if sketch is None:
            sketch = Sketch()
            if len(self._by_key) >= self._sketches_max:
                del self._by_key[next(iter(self._by_key))]
        self._by_key[key] = sketch
        return sketch

    @property
    def weight_max(self) -> float:
        return self._weight_max

    def put(self, key: Hashable, sketch: Sketch) -> None:
        """Add a sketch under its key."""
        self.touched(key)
        self._by_key[key] = sketch

    def items(self) -> Iterator[tuple[Hashable, Sketch]]:
        """Oldest first."""
        return iter(self._by_key.items())
