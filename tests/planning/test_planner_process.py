"""The wire form, the process that answers, and a worker whose process does not start or sends nonsense."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tao.planning import (
    SOLVERS,
    Item,
    Knapsack,
    PlanCrashError,
    PlanTimeoutError,
    PlanWorker,
    PlanWorkerBusyError,
    PlanWorkerError,
    Problem,
    Triple,
    solve,
)
from tao.planning import wire as wire_module
from tao.planning.child import READY, serve
from tao.planning.wire import (
    FRAME_BYTES_MAX,
    FRAME_HEADER,
    Reply,
    Request,
    decode_problem,
    decode_reply,
    encode_problem,
    encode_reply,
    encode_request,
    frame,
)
from tao.planning.worker import COMMAND
from tests.planning.pools import pool

PYTHON = (sys.executable, "-c")
NEVER_READY = (*PYTHON, "import sys; sys.stdin.read()")
ENDS_AT_ONCE = (*PYTHON, "raise SystemExit(3)")
SAYS_HELLO = (
    *PYTHON,
    "import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\5hello'); sys.stdout.flush(); sys.stdin.read()",
)
READY_THEN = "import sys; out = sys.stdout.buffer; out.write(b'\\0\\0\\0\\5ready'); out.flush(); sys.stdin.buffer.read(1); "
SENDS_NONSENSE = (*PYTHON, READY_THEN + "out.write(b'\\0\\0\\0\\3xyz'); out.flush(); sys.stdin.read()")
SENDS_TOO_MUCH = (*PYTHON, READY_THEN + "out.write(b'\\xff' * 9); out.flush(); sys.stdin.read()")
READY_THEN_SILENT = (*PYTHON, READY_THEN + "sys.stdin.read()")


class Gate:
    """A file that keeps a process from starting while it is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shut(self) -> None:
        self.path.touch()

    def open(self) -> None:
        self.path.unlink()


def small() -> Problem:
    dense = Item("dense", 3, {"a": Triple(2, 1, 3), "b": Triple(0, 0, 4)}, "b", 1.5)
    return replace(
        pool(4, 6, 2), items=(*pool(4, 6, 2).items, replace(dense, values={"k0": Triple(2, 1, 3)}))
    )


def frames(data: bytes) -> list[bytes]:
    stream, found = io.BytesIO(data), []
    while header := stream.read(FRAME_HEADER.size):
        found.append(stream.read(FRAME_HEADER.unpack(header)[0]))
    return found


@pytest.mark.parametrize("problem", [small(), pool(1, 40, 4), Problem((Knapsack("a", 3, 1),), (), 30.0)])
def test_problems_survive_the_wire(problem: Problem) -> None:
    assert decode_problem(encode_problem(problem)) == problem


def test_the_wire_form_is_compact() -> None:
    assert len(encode_problem(pool(1, 1_000, 64))) < 64 * 1024


def test_frames_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "FRAME_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="above the limit of 10"):
        frame(b"12345678901")


def test_the_process_warms_up_answers_and_survives_what_raises() -> None:
    problem = small()
    requests = [
        encode_request(Request(encode_problem(problem), "auto", 5.0)),
        encode_request(Request(encode_problem(problem), "best", None)),
        b"nonsense",
        encode_request(Request(b"nonsense", "auto", None)),
    ]
    sink = io.BytesIO()
    serve(io.BytesIO(b"".join(map(frame, requests)) + b"\0\0"), sink)
    ready, *replies = frames(sink.getvalue())
    assert ready == READY
    decoded = [decode_reply(reply) for reply in replies]
    assert decoded[0].error is None
    assert decoded[0].answer is not None
    assert decoded[0].answer.assignment == solve(problem, "auto").assignment
    for reply, name in zip(decoded[1:], ("UnknownSolverError", "msgspec.", "msgspec."), strict=True):
        assert reply.answer is None
        assert name in (reply.error or "")


def test_warming_up_loads_the_search_and_nothing_else_does() -> None:
    script = (
        "import sys; from tao.planning.child import warm_up; before = 'ortools' in sys.modules; warm_up(); "
        "print(before, 'ortools' in sys.modules)"
    )
    done = subprocess.run((*PYTHON, script), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_request_cut_short_ends_the_process() -> None:
    sink = io.BytesIO()
    serve(io.BytesIO(frame(b"12345")[:-1]), sink)
    assert frames(sink.getvalue()) == [READY]


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_answers_survive_the_wire(solver: str) -> None:
    problem = replace(pool(1, 20, 2), wait_seconds_max=0.0)
    answer = solve(problem, solver)
    assert answer.ageing is not None
    assert decode_reply(encode_reply(Reply(answer, None))) == Reply(answer, None)
    with pytest.raises(msgspec.DecodeError):
        decode_reply(b"\xc1")


def test_the_process_keeps_its_output_clean_and_ends_with_its_input() -> None:
    request = frame(encode_request(Request(encode_problem(small()), "exact", 5.0)))
    done = subprocess.run(COMMAND, input=request, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    ready, reply = frames(done.stdout)
    assert ready == READY
    assert decode_reply(reply).answer is not None


def test_the_process_ends_quietly_when_nobody_listens() -> None:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (ENDS_AT_ONCE, "did not start"),
        (("no-such-program-anywhere",), "did not start"),
        (SAYS_HELLO, "first message is not"),
        (NEVER_READY, "did not start within 0.2 s"),
    ],
)
async def test_a_process_that_does_not_start(command: tuple[str, ...], message: str) -> None:
    worker = PlanWorker(command, start_seconds_max=0.2 if command is NEVER_READY else 30.0)
    with pytest.raises(PlanCrashError, match=message):
        await worker.start()
    assert worker.pid is None
    with pytest.raises(PlanWorkerError):
        await worker.solve(small(), "auto", 1.0)


@pytest.mark.parametrize("command", [SENDS_NONSENSE, SENDS_TOO_MUCH])
async def test_nonsense_is_a_crash(command: tuple[str, ...]) -> None:
    assert FRAME_BYTES_MAX < 0xFFFFFFFF
    async with PlanWorker(command) as worker:
        with pytest.raises(PlanCrashError, match="failed"):
            await worker.solve(small(), "auto", 30.0)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "shut")


async def test_a_restart_that_fails_is_said_and_tried_again(gate: Gate) -> None:
    script = f"import os\nif os.path.exists({str(gate.path)!r}): raise SystemExit(3)\n{COMMAND[-1]}"
    async with PlanWorker((*PYTHON, script)) as worker:
        assert worker.pid is not None
        gate.shut()
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(PlanCrashError):
            await worker.solve(small(), "auto", 30.0)
        with pytest.raises(PlanCrashError, match="did not start"):
            await worker.solve(small(), "auto", 30.0)
        gate.open()
        assert (await worker.solve(small(), "auto", 30.0)).status == "optimal"
        assert worker.stats.restarts == 2


async def test_a_process_still_starting_is_waited_for_within_the_deadline() -> None:
    async with PlanWorker(READY_THEN_SILENT) as worker:
        with pytest.raises(PlanTimeoutError, match="no plan within"):
            await worker.solve(small(), "auto", 0.05)
        with pytest.raises(PlanTimeoutError, match="still starting"):
            await worker.solve(small(), "auto", 0.0)


async def test_cancelling_replaces_the_process() -> None:
    async with PlanWorker(READY_THEN_SILENT) as worker:
        pid = worker.pid
        outstanding = asyncio.create_task(worker.solve(small(), "auto", 30.0))
        await asyncio.sleep(0)
        outstanding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outstanding
        with pytest.raises(PlanTimeoutError):
            await worker.solve(small(), "auto", 1.0)
        assert worker.pid != pid


async def test_closing_ends_what_is_outstanding() -> None:
    worker = PlanWorker(READY_THEN_SILENT)
    await worker.start()
    with pytest.raises(PlanWorkerBusyError):
        await worker.start()
    outstanding = asyncio.create_task(worker.solve(small(), "auto", 30.0))
    await asyncio.sleep(0)
    await worker.close()
    with pytest.raises(PlanCrashError):
        await outstanding
    await worker.close()


async def test_closing_while_restarting_leaves_nothing() -> None:
    worker = PlanWorker(READY_THEN_SILENT)
    await worker.start()
    with pytest.raises(PlanTimeoutError):
        await worker.solve(small(), "auto", 0.05)
    await worker.close()
    assert worker.pid is None


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    worker = PlanWorker(NEVER_READY)
    starting = asyncio.create_task(worker.start())
    while worker.pid is None:  # noqa: ASYNC110 - there is no event to wait for before the process exists
        await asyncio.sleep(0.001)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert worker.pid is None
