"""Replicas behind a DNS name: every A and AAAA record is one. The name is resolved again every period.

Names of services without a replica at the moment do not exist in many clusters, so "no such name" means an empty set, but
only when it was said several times in a row: one wrong answer must not empty the fleet. Any other failure leaves the
last set as it is.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import structlog

from tao.gateway.sources.addresses import AddressError, check_address, in_url
from tao.gateway.sources.port import Wanted

LOOKUP_SECONDS_MAX = 10.0
EMPTY_ANSWERS = 3
"""So many times in a row the name must not exist before its replicas are let go."""

_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class DnsNames:
    """Implements `ReplicaSource` for one URL with a name in it. `resolve` gives the addresses of a name and a port.

    Raises `AddressError` where the URL cannot be used so.
    """

    def __init__(self, url: str, period_seconds: float, resolve: Resolve | None = None) -> None:
        check_address(url)
        parts = urlsplit(url)
        if parts.scheme != "http":
            raise AddressError(
                f"{url!r}: replicas by DNS need http, since certificates name hosts and not addresses"
            )
        self.name = f"dns {url}"
        self.problem: str | None = None
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._path = parts.path.rstrip("/")
        self._period_seconds = period_seconds
        self._resolve = resolve or _addresses
        self._log = structlog.get_logger("tao.replicas")

    async def desired(self) -> AsyncIterator[tuple[Wanted, ...]]:
        """See `ReplicaSource.desired`."""
        last: tuple[Wanted, ...] | None = None
        missing = 0
        while True:
            wanted: tuple[Wanted, ...] | None = None
            try:
                async with asyncio.timeout(LOOKUP_SECONDS_MAX):
                    addresses = await self._resolve(self._host, self._port)
                wanted = tuple(
                    Wanted(f"http://{in_url(address)}:{self._port}{self._path}")
                    for address in sorted(set(addresses))
                )
                missing = 0
                self.problem = None
            except TimeoutError:
                self._complain(f"no answer within {LOOKUP_SECONDS_MAX:g} s")
            except UnicodeError as error:  # the name cannot even be asked for
                missing = 0
                self._complain(str(error))
            except OSError as error:
                missing = missing + 1 if error.errno in _NO_SUCH_NAME else 0
                self._complain(error.strerror or str(error))
                wanted = () if missing >= EMPTY_ANSWERS else None
            if wanted is not None and wanted != last:
                last = wanted
                yield wanted
            await asyncio.sleep(self._period_seconds)

    def _complain(self, why: str) -> None:
        problem = f"{self._host} cannot be resolved: {why}"
        if problem != self.problem:
            self._log.error("replicas by DNS: the last addresses stay for now", problem=problem)
        self.problem = problem


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
