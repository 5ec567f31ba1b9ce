"""What is written in one step of the loop leaves in one write, in order, and not after a close."""

import asyncio
from typing import Any

from tao.gateway.http.gathered import GATHERED_BYTES_MAX, GatheredWrites


class Written(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reset = reset
        self.end = ""

    def write(self, data: Any) -> None:
        if self.reset:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"


def gathered(below: Written) -> GatheredWrites:
    return GatheredWrites(below, asyncio.get_running_loop())


async def test_what_is_written_in_one_step_leaves_at_once() -> None:
    below = Written()
    transport = gathered(below)
    for piece in (b"head", b"piece", b"end"):
        transport.write(piece)
    assert below.writes == []
    await asyncio.sleep(0)
    assert below.writes == [b"headpieceend"]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert below.writes == [b"headpieceend", b"next"]


async def test_much_is_not_gathered() -> None:
    below = Written()
    transport = gathered(below)
    transport.write(b"a")
    transport.write(b"b" * GATHERED_BYTES_MAX)
    assert [len(data) for data in below.writes] == [GATHERED_BYTES_MAX + 1]
    await asyncio.sleep(0)
    assert len(below.writes) == 1


async def test_a_close_comes_after_what_was_written_and_an_abort_before() -> None:
    closed, aborted = Written(), Written()
    for below, end in ((closed, "close"), (aborted, "abort")):
        transport = gathered(below)
        transport.write(b"last")
        getattr(transport, end)()
        await asyncio.sleep(0)
    assert (closed.writes, closed.end) == ([b"last"], "closed")
    assert (aborted.writes, aborted.end) == ([], "aborted")


async def test_a_connection_that_was_reset_is_cut() -> None:
    below = Written(reset=True)
    gathered(below).write(b"too late")
    await asyncio.sleep(0)
    assert below.end == "aborted"
