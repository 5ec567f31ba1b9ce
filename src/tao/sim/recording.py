"""Joint decisions of a simulated run kept as files for `tao plan`, in a folder of their own for each run.

It knows how a run's folder is named; what is written is in `tao.record.snapshots`.
"""

from collections.abc import Sequence
from pathlib import Path

from tao.core.commands import Command
from tao.core.events import Event
from tao.record.snapshots import SnapshotWriter


class SnapshotsKept:
    """An observer that writes a snapshot for each plan. Raises OSError where that fails."""

    watches: frozenset[type[Event]] = frozenset()

    def __init__(self, folder: Path, run_name: str) -> None:
        self._writer = SnapshotWriter(folder / run_name)

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        self._writer.observe(event, commands)

    def end(self, at: float) -> None:
        """Each file is complete when it is written."""
