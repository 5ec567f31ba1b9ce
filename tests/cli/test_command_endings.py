"""How any command ends that has no answer of its own: Ctrl-C, a disk that is full."""

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_kit import until

from tao.cli import main

FULL = Path("/dev/full")
LONG = ("simulate", "--fitted", "3000", "--policy", "tao,round-robin,aimd", "--processes", "2")


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("simulate", "--sessions", "1", "--policy", "round-robin"),
        ("simulate", "--sessions", "1", "--policy", "round-robin", "--json", "-"),
        ("trace", "stats", "sample"),
        ("trace", "stats", "sample", "--json"),
        ("predict", "sample"),
    ],
)
async def test_a_full_disk_behind_the_output_is_told(arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:  # noqa: ASYNC230 - a device
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tao", *arguments, stdout=full, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(process.communicate(), 60.0)
    assert process.returncode == 1
    assert said.decode() == "Error: cannot write the output: No space left on device\n"


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tao.traces.lines.Path.open", interrupted)
    result = CliRunner().invoke(main, ["trace", "stats", "sample"])
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def children(pid: int) -> list[int]:
    """Processes that this one started and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("whole_group", [True, False], ids=["from a terminal", "to the command alone"])
async def test_an_interrupt_while_processes_simulate_ends_them_at_once(whole_group: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tao",
        *LONG,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    await until(lambda: len(children(process.pid)) == 3, 60.0)  # with multiprocessing's own, which watches
    watched = [os.pidfd_open(child) for child in children(process.pid)]
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)  # in the middle of their imports, most of the time
    else:
        process.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(process.communicate(), 30.0)
    assert (process.returncode, said.decode()) == (130, "interrupted\n")
    for child in watched:
        ended, _, _ = await asyncio.to_thread(select.select, [child], [], [], 10.0)
        os.close(child)
        assert ended, "a process goes on without its parent"
