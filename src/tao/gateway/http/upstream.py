"""The HTTP client towards the engines: requests go out unchanged, answers come back undecoded.

A kept-alive connection can be closed by the engine just as a request is written to it; such a request has not been
looked at by anybody and is sent once more on a fresh connection.
"""

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import ClientTimeout
from yarl import URL

from tao.gateway.config import Timeouts
from tao.gateway.exchange import BrokenError, ClientRequest, RawHeaders, UnreachableError
from tao.gateway.http.headers import end_to_end

ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
NOT_SENT_ON = frozenset({b"host", b"content-length"})


class HttpAnswer:
    """Implements `tao.gateway.exchange.Answer`."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: RawHeaders = end_to_end(response.raw_headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._response.content
        try:
            while chunk := await content.readany():
                yield chunk
        except ERRORS as error:
            raise BrokenError(_say(error)) from error

    def close(self) -> None:
        self._response.close()


class HttpUpstream:
    """Implements `tao.gateway.exchange.Upstream`. Use inside a running event loop; `close` when done."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._first_byte_seconds = timeouts.first_byte_seconds
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            timeout=ClientTimeout(
                total=None, sock_connect=timeouts.connect_seconds, sock_read=timeouts.silence_seconds
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def send(self, base_url: str, request: ClientRequest) -> HttpAnswer:
        url = URL(base_url + request.target, encoded=True)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in end_to_end(request.headers, NOT_SENT_ON)
        ]
        body = request.body if request.body or request.method in {"POST", "PUT", "PATCH"} else None
        for attempt in (1, 2):
            try:
                response = await self._http.request(
                    request.method, url, headers=headers, data=body, allow_redirects=False
                )
            except aiohttp.ServerDisconnectedError as error:
                if attempt == 2:
                    raise UnreachableError(_say(error)) from error
            except ERRORS as error:
                raise UnreachableError(_say(error)) from error
            else:
                return HttpAnswer(response)
        raise AssertionError("the loop returns or raises")

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
