"""The engine's process group ends for sure, also where it ignores TERM and has children: no engine is needed here."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine import processes
from tests.engine.processes import ServiceError, end, free_port, service, tail

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


def test_the_cause_is_told_where_much_was_logged_after_it(tmp_path: Path) -> None:
    cause = "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:37073')"
    log = tmp_path / "log"
    log.write_text(
        f"(EngineCore) ERROR [core.py:1510] {cause}\n" * 2
        + "shutting down\n" * 1_000
        + "RuntimeError: see above\n"
    )
    told = tail(log)
    assert told.startswith(f"{cause}\n[...]\n")
    assert told.count(cause) == 1
    assert told.endswith("shutting down\nRuntimeError: see above\n")
    log.write_text("no such model\n")
    assert tail(log) == "no such model\n"


def test_a_port_for_later_is_none_that_the_system_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM bound a port half a minute after it had been chosen, and once something else had it by then."""
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == len(given)
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        assert max(given) < any_port.getsockname()[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("random.randrange", lambda *_: taken.getsockname()[1])
        with pytest.raises(ServiceError, match=f"{processes.PORT_TRIES_MAX} TCP ports below .* are in use"):
            free_port()
