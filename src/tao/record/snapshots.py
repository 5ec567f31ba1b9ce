"""Every joint decision of a run as a file that `tao plan` reads.

An observer of a driver, live or simulated: for each plan that the core asks for it writes the snapshot that the plan is
computed from. The number of files is bounded; it must not know how plans are computed.
"""

from collections.abc import Sequence
from pathlib import Path

from tao.core.commands import Command, ComputePlan
from tao.core.events import Event
from tao.planning.snapshot import write_snapshot
from tao.policies import problem_of

FILES_MAX = 10_000


class SnapshotWriter:
    """Writes `plan-000001.json` and so on into a folder, which it makes. Raises `OSError` where that fails.

    After `files_max` snapshots no more are written; `skipped` counts them.
    """

    def __init__(self, folder: Path, files_max: int = FILES_MAX) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files_max = files_max
        self.written = 0
        self.skipped = 0

    def observe(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002 - an observer's signature
        """Take note of an event and its commands."""
        for command in commands:
            if isinstance(command, ComputePlan):
                self._write(command)

    def _write(self, command: ComputePlan) -> None:
        if self.written >= self._files_max:
            self.skipped += 1
            return
        self.written += 1
        path = self._folder / f"plan-{command.plan:06d}.json"
        path.write_bytes(write_snapshot(problem_of(command.request)))
