"""The planner's process: reads framed requests from standard input, writes framed replies to standard output.

Started by `tao.planning.worker`, which calls `main`. It solves one small problem with every solver before
it reports that it is ready, so that no plan waits for an import. It ends when its input does, and leaves Ctrl-C to
its parent. Must not know asyncio.
"""

import os
import signal
import sys
import traceback
from typing import BinaryIO

from tao.planning.problem import Item, Knapsack, Problem, SparseValues
from tao.planning.solver import WorkLimit
from tao.planning.solvers import SOLVERS, solve
from tao.planning.wire import (
    FRAME_HEADER,
    Reply,
    decode_problem,
    decode_request,
    encode_problem,
    encode_reply,
    frame,
)

READY = b"ready"


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Warm up, say so, then answer requests until `source` ends."""
    warm_up()
    _write(sink, READY)
    while (request := _read(source)) is not None:
        _write(sink, encode_reply(answer(request)))


def answer(payload: bytes) -> Reply:
    """Solve one request; whatever it raises travels back as text."""
    try:
        request = decode_request(payload)
        problem = decode_problem(request.problem)
        return Reply(solve(problem, request.solver, WorkLimit(seconds=request.search_seconds)), None)
    except Exception:
        return Reply(None, traceback.format_exc())


def warm_up() -> None:
    """Load and run every solver once, through the wire form, on a problem that is searched and not just listed."""
    names = ("x", "y")
    items = tuple(
        Item(f"i{n:02}", 5 + n, SparseValues(names, {names[n % 2]: 1 + n * n % 7}, n % 2, 5 + n))
        for n in range(14)
    )
    problem = encode_problem(Problem((Knapsack("x", 29), Knapsack("y", 41)), items))
    for name in sorted(SOLVERS):
        solve(decode_problem(problem), name, WorkLimit(seconds=1.0))


def _read(source: BinaryIO) -> bytes | None:
    header = source.read(FRAME_HEADER.size)
    if len(header) < FRAME_HEADER.size:
        return None
    (size,) = FRAME_HEADER.unpack(header)
    payload = source.read(size)
    return payload if len(payload) == size else None


def _write(sink: BinaryIO, payload: bytes) -> None:
    sink.write(frame(payload))
    sink.flush()


def main() -> None:
    """Keep the real standard output for replies: whatever a library prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(sys.stdin.buffer, replies)
    except BrokenPipeError:
        os._exit(0)  # the parent has gone: nothing is left to tell anyone
