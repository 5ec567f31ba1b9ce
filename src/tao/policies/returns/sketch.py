"""A histogram that forgets: the newest observations weigh more, and its total weight is bounded.

Its bins lie side by side in one integer, 64 bits each, so that Python adds and halves whole histograms in one operation, and
whoever keeps the integer keeps the histogram as it was. Two sketches with the same bins can be merged by adding them.
`SketchTable` keeps a bounded number of them.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import islice
from struct import Struct

from tao.policies.returns.bins import BIN_COUNT

UNIT = 1 << 16
"""One observation, as a fixed-point number. A field holds at most 2 ** 64: weights stay below 2 ** 48."""

_FIELDS = Struct(f"<{BIN_COUNT}Q")


def packed(fields: Sequence[int]) -> int:
    """One integer of 64 bits a bin."""
    return int.from_bytes(_FIELDS.pack(*fields), "little")


def unpacked(whole: int) -> tuple[int, ...]:
    """The bins of `packed`."""
    return _FIELDS.unpack(whole.to_bytes(_FIELDS.size, "little"))


_ONE = tuple(UNIT << (64 * index) for index in range(BIN_COUNT))
_ALL_BUT_TOP_BITS = packed([2**63 - 1] * BIN_COUNT)


class Sketch:
    """Weights by bin; `weight` is their sum, in observations."""

    __slots__ = ("weight", "whole")

    def __init__(self, whole: int = 0, weight: float = 0.0) -> None:
        self.whole = whole
        self.weight = weight

    @classmethod
    def of(cls, masses: Sequence[float]) -> "Sketch":
        """A sketch with these weights by bin."""
        return cls(packed([round(mass * UNIT) for mass in masses]), float(sum(masses)))

    @property
    def masses(self) -> list[float]:
        """Weight of each bin, in observations."""
        return [field / UNIT for field in unpacked(self.whole)]

    def add(self, index: int, weight_max: float) -> None:
        """One more duration, by its bin; the weight stays below twice `weight_max`."""
        if self.weight >= 2.0 * weight_max:
            self._make_room(weight_max)
        self.whole += _ONE[index]
        self.weight += 1.0

    def add_masses(self, masses: Sequence[float], weight_max: float) -> None:
        """An observation whose duration is known as chances by bin only."""
        self._make_room(weight_max)
        self.whole += packed([round(mass * UNIT) for mass in masses])
        self.weight += sum(masses)

    def merge(self, other: "Sketch") -> None:
        """Take over what another sketch has seen."""
        self.whole += other.whole
        self.weight += other.weight

    def _make_room(self, weight_max: float) -> None:
        """At twice `weight_max` every bin is halved: old observations are forgotten exponentially."""
        while self.weight >= 2.0 * weight_max:
            self.whole = (self.whole >> 1) & _ALL_BUT_TOP_BITS
            self.weight *= 0.5


class SketchTable:
    """Sketches by key, at most `sketches_max`: the one that was learned of longest ago gives way."""

    def __init__(self, sketches_max: int, weight_max: float) -> None:
        self.weight_max = weight_max
        self._sketches_max = sketches_max
        self._by_key: OrderedDict[Hashable, Sketch] = OrderedDict()  # a dict is slow to lose its first key
        self.get = self._by_key.get
        """The sketch of a key; None where there is none."""

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, key: Hashable, index: int) -> None:
        """One more duration, by its bin, under a key."""
        sketch = self._by_key.get(key)
        if sketch is None:
            self.put(key, Sketch(_ONE[index], 1.0))
            return
        self._by_key.move_to_end(key)
        sketch.add(index, self.weight_max)

    def touched(self, key: Hashable) -> Sketch:
        """The sketch of a key, made if need be, and now the newest."""
        sketch = self._by_key.get(key)
        if sketch is None:
            sketch = Sketch()
            self.put(key, sketch)
        else:
            self._by_key.move_to_end(key)
        return sketch

    def put(self, key: Hashable, sketch: Sketch) -> None:
        """A sketch under a new key."""
        by_key = self._by_key
        if len(by_key) >= self._sketches_max:
            by_key.popitem(last=False)
        by_key[key] = sketch

    def newest(self, count: int) -> list[tuple[Hashable, Sketch]]:
        """At most so many, the newest last."""
        return list(islice(self._by_key.items(), max(0, len(self._by_key) - count), None))
