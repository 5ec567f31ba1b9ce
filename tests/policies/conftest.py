"""Small replicas, whose figures can be followed."""

from small_replicas import reserve_as_on_large_replicas

__all__ = ["reserve_as_on_large_replicas"]
