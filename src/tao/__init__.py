"""TAO: whole agent sessions scheduled across serving replicas."""

__version__ = "0.1.0"
