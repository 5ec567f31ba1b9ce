"""The body of one answer on its way to the client, and how it breaks off where the rest will not come.

An error of TAO's own is an event by itself. In the middle of an event it would be read as part of that one, so such a
stream is only cut: clients tell a cut connection as one, and half an event as one that cannot be read. It must not know
why an answer breaks off.
"""

from tao.gateway.exchange import Answer, Client
from tao.gateway.replies import takes_events
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.refusals import Problem, error_event
from tao.gateway.wire.sse import END_BYTES_MAX, ends_event

_BETWEEN_EVENTS = b"\n\n"
_UNKNOWN = b""


class Outgoing:
    """Passes an answer's body on to a client of `dialect`, whose headers are out."""

    __slots__ = ("_answer", "_client", "_dialect", "_tail")

    def __init__(self, client: Client, dialect: Dialect, answer: Answer) -> None:
        self._client = client
        self._dialect = dialect
        self._answer = answer
        self._tail = _BETWEEN_EVENTS

    async def send(self, piece: bytes) -> None:
        """Pass a piece on. Of one that is cancelled on its way nobody knows how much the client gets."""
        tail = (self._tail + piece[-END_BYTES_MAX:])[-END_BYTES_MAX:]
        self._tail = _UNKNOWN
        await self._client.send(piece)
        self._tail = tail

    async def break_off(self, message: str) -> None:
        """End an event stream with an error event if its last event is whole; cut it, and anything else, visibly."""
        if takes_events(self._answer.headers) and ends_event(self._tail):
            await self._client.send(error_event(self._dialect, Problem.UPSTREAM_FAILED, message))
        self._client.abort()
