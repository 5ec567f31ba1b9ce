"""How an answer breaks off: an error event where the client can read it as one, a visible cut in any case."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tao.gateway.exchange import RawHeaders
from tao.gateway.outgoing import Outgoing
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.refusals import Problem, error_event

EVENT = b"data: 1\n\n"
ERROR = error_event(Dialect.OPENAI_CHAT, Problem.UPSTREAM_FAILED, "gone")


class EventStream:
    """An engine's answer, as far as it is looked at."""

    status = 200
    complete = False
    headers: RawHeaders = ((b"content-type", b"text/event-stream"),)

    def chunks(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


class Stalling:
    """A client that reads nothing while `reads` is not set."""

    started = True

    def __init__(self) -> None:
        self.got = b""
        self.aborted = False
        self.reads = asyncio.Event()
        self.reads.set()

    async def start(self, status: int, headers: RawHeaders) -> None:
        raise NotImplementedError

    async def send(self, chunk: bytes) -> None:
        await self.reads.wait()
        self.got += chunk

    async def finish(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([], True),
        ([EVENT], True),
        ([b"data: 1\r\n", b"\r", b"\n"], True),
        ([EVENT, b"data: 1\n"], False),
        ([EVENT, b"d"], False),
        ([b"event: x\n"], False),
    ],
)
async def test_an_error_event_comes_only_between_events(pieces: list[bytes], whole: bool) -> None:
    client = Stalling()
    out = Outgoing(client, Dialect.OPENAI_CHAT, EventStream())
    for piece in pieces:
        await out.send(piece)
    await out.break_off("gone")
    assert client.got == b"".join(pieces) + (ERROR if whole else b"")
    assert client.aborted


async def test_a_piece_that_is_cancelled_on_its_way_leaves_only_the_cut() -> None:
    """Whatever of it the client gets; and one that does not read would not take the error either."""
    client = Stalling()
    out = Outgoing(client, Dialect.OPENAI_CHAT, EventStream())
    await out.send(EVENT)
    client.reads.clear()
    sending = asyncio.get_running_loop().create_task(out.send(EVENT))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await out.break_off("gone")
    assert (client.got, client.aborted) == (EVENT, True)
