"""Servers as processes, for tests and benchmarks: started in a group of their own, waited for, surely ended.

It knows addresses and deadlines, and nothing of what a process serves.
"""

import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_SECONDS_MAX = 60.0
END_SECONDS_MAX = 15.0
POLL_SECONDS = 0.1
ANSWER_SECONDS_MAX = 2.0
LOG_TAIL_CHARACTERS = 4_000
LOG_ERRORS_MAX = 5
LOG_LINE_CHARACTERS = 300
ERROR_LINE = re.compile(r"[\w.]*(?:Error|Exception): .+")
"""What stands in the last line of a traceback, after whatever a logger writes before it."""
EPHEMERAL_PORTS_FROM = 32_768
EPHEMERAL_PORTS_FROM_MIN = 8_192
PORT_TRIES_MAX = 100

_ports_given: set[int] = set()


class ServiceError(RuntimeError):
    """A process cannot start, ended while starting, or was late to answer; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running process that answers on `url`."""

    url: str
    pid: int
    log_path: Path


def free_port() -> int:
    """A loopback TCP port for a server that may bind it only a minute later.

    It is below the ports that the system gives to outgoing connections and to those who ask for any: one of these may be
    taken meanwhile. No port is given twice by this process. Raises ServiceError when a hundred are in use.
    """
    below = _ephemeral_ports_from()
    for _ in range(PORT_TRIES_MAX):
        port = random.randrange(below // 2, below)
        if port in _ports_given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _ports_given.add(port)
            return port
    raise ServiceError(f"{PORT_TRIES_MAX} TCP ports below {below} are in use")


def _ephemeral_ports_from() -> int:
    """The first port that the system gives away itself; where it keeps none below for others, Linux's default."""
    with suppress(OSError, ValueError):
        told = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        if told >= EPHEMERAL_PORTS_FROM_MIN:
            return told
    return EPHEMERAL_PORTS_FROM


def answers(url: str) -> bool:
    """Whether an HTTP GET gets a status below 400 in time."""
    with (
        suppress(urllib.error.URLError, OSError),
        urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer,
    ):
        return bool(answer.status < 400)
    return False


def tail(log_path: Path) -> str:
    """The end of a log, for messages; before it the first errors of a longer one, which are mostly the cause of the last."""
    text = log_path.read_text(errors="replace")
    before, end_of_it = text[:-LOG_TAIL_CHARACTERS], text[-LOG_TAIL_CHARACTERS:]
    errors = list(dict.fromkeys(found[0][:LOG_LINE_CHARACTERS] for found in ERROR_LINE.finditer(before)))
    return "\n".join([*errors[:LOG_ERRORS_MAX], *(["[...]"] if before else []), end_of_it])


@contextmanager
def service(
    command: Sequence[str],
    url: str,
    log_path: Path,
    *,
    ready_path: str = "/v1/models",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    start_seconds_max: float = START_SECONDS_MAX,
) -> Iterator[Service]:
    """Run `command` while the block lasts; its output goes to `log_path`. Raises ServiceError if it does not come up."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            start_new_session=True,
        )
    try:
        _wait_ready(process, url + ready_path, log_path, start_seconds_max)
        yield Service(url, process.pid, log_path)
    finally:
        end(process)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log_path: Path, start_seconds_max: float) -> None:
    name = Path(str(process.args[0] if isinstance(process.args, Sequence) else process.args)).name
    deadline = time.monotonic() + start_seconds_max
    while time.monotonic() < deadline:
        if answers(url):
            return
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=POLL_SECONDS)
            raise ServiceError(f"{name} ended with code {code} while starting:\n{tail(log_path)}")
    raise ServiceError(f"{name} did not answer {url} within {start_seconds_max:g} s:\n{tail(log_path)}")


def end(process: subprocess.Popen[bytes], seconds_max: float = END_SECONDS_MAX) -> None:
    """TERM to the whole group and a bounded wait for its first process, then KILL to what is left of the group.

    vLLM may swallow a TERM while it starts.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds_max)
    if process.returncode is None:
        raise ServiceError(f"process {process.pid} survived SIGKILL")


def run_bounded(command: Sequence[str], log_path: Path, seconds_max: float) -> int:
    """Run a command to its end; its exit code, 124 if it had to be ended after `seconds_max`."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return process.wait(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        end(process)
