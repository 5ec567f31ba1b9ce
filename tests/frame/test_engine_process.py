"""The engine's process group ends for sure, also where it ignores TERM and has children: no engine is needed here."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.processes import ServiceError, end, free_port, service

STUBBORN = """
trap '' TERM
sleep 300 &
echo $! > child
echo ready
wait
wait
"""


def ended(process: int, seconds_max: float) -> bool:
    """Whether the process behind this descriptor has ended, or does so in time."""
    return bool(select.select([process], [], [], seconds_max)[0])


@pytest.fixture
def stubborn(tmp_path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["bash", "-c", STUBBORN], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="watches a process that is not our child")
def test_a_process_that_ignores_term_is_killed_with_its_children(
    stubborn: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    child = os.pidfd_open(int((tmp_path / "child").read_text()))
    try:
        assert not ended(child, seconds_max=0.0)
        end(stubborn, seconds_max=0.2)
        assert stubborn.returncode == -signal.SIGKILL
        assert ended(child, seconds_max=10.0)
    finally:
        os.close(child)


def test_a_process_that_ended_by_itself_is_no_error() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait(timeout=10)
    end(process, seconds_max=0.2)
    assert process.returncode == os.EX_OK


def test_an_engine_that_ends_while_starting_is_reported_with_its_log(tmp_path: Path) -> None:
    command = ["bash", "-c", "echo no such model; exit 1"]
    url = f"http://127.0.0.1:{free_port()}"
    with (
        pytest.raises(ServiceError, match="code 1 while starting:\nno such model"),
        service(command, url, tmp_path / "log", ready_path="/health"),
    ):
        pytest.fail("it cannot be up")
