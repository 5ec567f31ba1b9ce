"""What a log's writer keeps back is on the disk soon, whatever becomes of the gateway."""

import io
from errno import ENOSPC
from pathlib import Path
from typing import Any

from gateway_kit import until

from tao.core import SchedulerSettings
from tao.core.events import WakeUp
from tao.gateway.recordedlog import flushed
from tao.record.log import LogWriter, read_log


def events_in(path: Path) -> int:
    return len(list(read_log(path))) if path.stat().st_size else -1


async def test_what_happened_is_on_the_disk_without_another_event(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    async with flushed(LogWriter(path, "tao", SchedulerSettings()), 0.01) as log:
        log.observe(WakeUp(1.0), [])
        assert path.stat().st_size == 0
        await until(lambda: events_in(path) == 1)
        log.observe(WakeUp(2.0), [])
        await until(lambda: events_in(path) == 2)
        log.observe(WakeUp(3.0), [])
    assert events_in(path) == 3


class FullDisk(io.RawIOBase):
    """Takes nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def write(self, content: Any) -> int:
        self.asked += 1
        raise OSError(ENOSPC, "No space left on device")


async def test_a_full_disk_is_told_once_and_ends_nothing(logs: list[dict[str, Any]]) -> None:
    disk = FullDisk()
    async with flushed(LogWriter(disk, "tao", SchedulerSettings()), 0.001):  # type: ignore[arg-type]
        await until(lambda: disk.asked > 3)
        assert len(logs) == 1
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("the log is not complete", "No space left on device")
    ] * 2
