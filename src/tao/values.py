"""Values: small records of what happened or was decided, by the million. A value never changes once it is made.

`@value` makes a slotted dataclass with equality and a hash. That nobody assigns to its fields is proved by the type checker
and not asked again at run time: a dataclass that guards its fields takes five times as long to make, and making values is
a good part of what the core and the simulator do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_slotted: Callable[[type[Any]], type[Any]] = dataclass(slots=True, unsafe_hash=True)


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Decorator: a slotted dataclass, frozen as far as the type checker is concerned."""
    return _slotted(cls)
