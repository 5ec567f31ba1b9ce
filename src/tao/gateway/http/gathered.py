"""A transport that writes once what its protocol writes in one go.

The head of an answer, its first piece and its end mostly come within one step of the loop; three system calls for them
cost more than all else that a server does. What is written is handed on in the loop's next step, or at once where it is
much. It must not know what the bytes mean.
"""

import asyncio
from typing import Any

GATHERED_BYTES_MAX = 64 * 1024


class GatheredWrites(asyncio.Transport):
    """In front of a connection's transport, which does all the rest."""

    __slots__ = ("_bytes", "_loop", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Gather it; `pause_writing` comes when the transport itself has too much."""
        if not self._pieces:
            self._loop.call_soon(self._hand_on)
        self._pieces.append(bytes(data))
        self._bytes += len(data)
        if self._bytes > GATHERED_BYTES_MAX:
            self._hand_on()

    def close(self) -> None:
        """Close once everything is written."""
        self._hand_on()
        self._transport.close()

    def abort(self) -> None:
        """Close now; what was gathered is lost."""
        self._pieces.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _hand_on(self) -> None:
        if not self._pieces:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        try:
            self._transport.write(data)
        except RuntimeError:
            # uvloop says so of a connection that was reset, just before it tells the protocol.
            self._transport.abort()
